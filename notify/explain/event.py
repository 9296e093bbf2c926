"""Explains why an event was or was not notified, and the state of its message; read-only."""

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db import connections, router
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..clock import REUSED_AFTER
from ..conf import conf
from ..dialects import dialect_of
from ..models import Control, RunLog
from ..steps import Step, UuidKey, columns_of, find_key, step_of
from .delivery import MailExplanation, TaskExplanation, explain_mails, explain_tasks, moment
from .unnotified import Finding, Inquiry, events_of, explain_no_candidate, explain_waiting


@dataclass(frozen=True)
class EventExplanation:
    """All there is to say about one event."""

    kind: str
    key: int
    key2: int
    is_notified: bool
    notified_at: datetime | None = None
    pass_id: str = ""
    findings: tuple[Finding, ...] = ()
    mails: tuple[MailExplanation, ...] = ()
    tasks: tuple[TaskExplanation, ...] = ()
    #: What people call the event, where its key is made of other columns.
    original_key: str = ""

    @property
    def name(self) -> str:
        """What the event is called."""
        return event_name(self.kind, self.key, self.key2, self.original_key)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The explanation as sentences, in the order things happened."""
        parts: list[MailExplanation | TaskExplanation] = [*self.mails, *self.tasks]
        return (*(finding.text for finding in self.findings), *(said for part in parts for said in part.sentences))


@dataclass(frozen=True)
class Explanation:
    """The answer for a key; several events when the kind tells them apart by key2 and none was given."""

    kind: str
    key: int
    key2: int | None
    events: tuple[EventExplanation, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as the command prints it and the API answers."""
        events = [{**asdict(event), "sentences": event.sentences} for event in self.events]
        return {"kind": self.kind, "key": self.key, "key2": self.key2, "events": events}


def explain_key(*, kind: str, key: str, key2: str | None = None, using: str | None = None) -> Explanation:
    """Explain an event whose key is given as people write it. Raises: WrongKey."""
    using = using or router.db_for_read(Control)
    number, number2 = find_key(kind, key, key2, using=using)
    return explain_event(kind=kind, key=number, key2=number2, using=using)


def explain_event(
    *,
    kind: str,
    key: int,
    key2: int | None = None,
    using: str | None = None,
    tenants: Collection[str] | None = None,
    now: datetime | None = None,
) -> Explanation:
    """
    Say for one event whether and when it was notified, by which pass, what became of it, or why it was not.

    ``tenants`` are those of the person who asks, None for one who sees all. Of an event of another tenant there is as
    little to say as of one that is nowhere: nothing.
    """
    using = using or router.db_for_read(Control)
    now = now or dialect_of(connections[using]).now(connections[using])
    inquiry = Inquiry(using=using, conf=conf(), now=now, tenants=tenants)
    step = step_of(kind)
    controls = Control.objects.using(using).filter(kind=kind, key=key).order_by("key2")
    if key2 is not None:
        controls = controls.filter(key2=key2)
    known = list(controls)
    explained = [
        explain_notified(control, inquiry) for control in known if tenants is None or control.tenant in tenants
    ]
    asked = asked_key2s(step, key, key2, inquiry) or ({0} if not known and tenants is None else set())
    asked -= {control.key2 for control in known}
    explained += [explain_unnotified(step, kind, key, other, inquiry) for other in sorted(asked)]
    return Explanation(kind, key, key2, tuple(explained))


def asked_key2s(step: Step | None, key: int, key2: int | None, inquiry: Inquiry) -> set[int]:
    """Return the discriminators that are asked for; a member of tenants gets those that are there and his only."""
    if key2 is not None and inquiry.tenants is None:
        return {key2}
    return present_key2s(step, key, inquiry, key2=key2)


def explain_notified(control: Control, inquiry: Inquiry) -> EventExplanation:
    """Explain an event that has its control row."""
    # A step with ``coalesce`` has one message for several events of a key.
    leader = control.covered_by or control
    mails = tuple(explain_mails(leader, using=inquiry.using, now=inquiry.now, is_whole=inquiry.tenants is None))
    tasks = tuple(explain_tasks(leader, using=inquiry.using))
    parts: list[MailExplanation | TaskExplanation] = [*mails, *tasks]
    pass_id = next((part.pass_id for part in parts if part.pass_id), "")
    name = event_name(control.kind, control.key, control.key2, control.original_key)
    if mails or tasks:
        findings = [Finding("notified", say_prepared(name, control.created_at, pass_id, inquiry))]
        findings += explain_reused(control, inquiry)
        if others := Control.objects.using(inquiry.using).filter(covered_by=leader).count():
            text = ngettext(
                "Its message tells of %(count)s event of this key.",
                "Its message tells of %(count)s events of this key.",
                others + 1,
            )
            findings.append(Finding("coalesced", text % {"count": others + 1}))
    else:
        text = _(
            "Event %(event)s was marked as known on %(at)s without mail or task: by a baseline "
            "(notify_pass --baseline), or by hand. It will never be notified."
        )
        findings = [Finding("baseline", text % {"event": name, "at": moment(control.created_at)})]
    return EventExplanation(
        kind=control.kind,
        key=control.key,
        key2=control.key2,
        is_notified=True,
        notified_at=control.created_at,
        pass_id=pass_id,
        findings=tuple(findings),
        mails=mails,
        tasks=tasks,
        original_key=control.original_key,
    )


def explain_reused(control: Control, inquiry: Inquiry) -> Iterator[Finding]:
    """Say that the event is a younger one under a key that was used before."""
    step = step_of(control.kind)
    if step is None:
        return
    found = step.only(events_of(step, inquiry), key=control.key, key2=control.key2).values_list("event_at", flat=True)
    at = found.first()
    if isinstance(at, datetime) and at > control.created_at + REUSED_AFTER:
        text = _(
            "The event of this key now happened on %(at)s, long after its control row was made on %(known_at)s: "
            "the key was used before, and nobody is told of the younger event."
        )
        yield Finding("reused_key", text % {"at": moment(at), "known_at": moment(control.created_at)})


def event_name(kind: str, key: int, key2: int, original_key: str = "") -> str:
    """Return what an event is called."""
    if original_key:
        return f"{kind} {original_key}"
    return f"{kind} {key}" + (f"/{key2}" if key2 else "")


def say_prepared(event: str, at: datetime, pass_id: str, inquiry: Inquiry) -> str:
    """Say when an event was prepared, by which pass, and where that ran; the run log may have been pruned since."""
    values: dict[str, Any] = {"event": event, "at": moment(at), "pass": pass_id}
    if not pass_id:
        return _("Event %(event)s was prepared on %(at)s.") % values
    if inquiry.tenants is not None:
        return _("Event %(event)s was prepared on %(at)s by pass %(pass)s.") % values
    row = RunLog.objects.using(inquiry.using).wholes().filter(pass_id=pass_id).first()
    if row is None:
        return _("Event %(event)s was prepared on %(at)s by pass %(pass)s, whose log row has been pruned.") % values
    return _("Event %(event)s was prepared on %(at)s by pass %(pass)s on %(host)s, process %(pid)s.") % {
        **values,
        "host": row.host,
        "pid": row.pid,
    }


def present_key2s(step: Step | None, key: int, inquiry: Inquiry, *, key2: int | None = None) -> set[int]:
    """Return the discriminators that the step's query gives for a key now."""
    if step is None:
        return set()
    events = step.only(events_of(step, inquiry), key=key, key2=key2)
    if inquiry.tenants is not None:
        events = events.filter(tenant__in=inquiry.tenants) if "tenant" in columns_of(events) else events.none()
    return {row["key2"] for row in events[:100]}


def explain_unnotified(step: Step | None, kind: str, key: int, key2: int, inquiry: Inquiry) -> EventExplanation:
    """Explain why an event has no control row."""
    original = ""
    if step is None:
        text = _("No app registers a step of kind “%(kind)s”, so nothing looks for such events.")
        findings = [Finding("no_step", text % {"kind": kind})]
    else:
        made = step.made_key(using=inquiry.using)
        columns = ("event_at",) if made is None else ("event_at", "original_key")
        found = list(step.only(events_of(step, inquiry), key=key, key2=key2).values(*columns)[:1])
        if found:
            original = found[0].get("original_key") or ""
        elif isinstance(made, UuidKey):
            original = str(UuidKey.from_numbers(key, key2))
        text = _("Event %(event)s has not been notified.")
        findings = [Finding("not_notified", text % {"event": event_name(kind, key, key2, original)})]
        if found:
            findings += explain_waiting(step, key, key2, found[0]["event_at"], inquiry)
        else:
            findings += explain_no_candidate(step, key, key2, inquiry)
    return EventExplanation(kind, key, key2, False, findings=tuple(findings), original_key=original)
