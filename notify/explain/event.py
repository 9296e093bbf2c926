"""Why this event was or was not notified, and what became of its message; reads only."""

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db import connections, router
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from ..conf import Conf, conf
from ..dialects import dialect_of
from ..models import Control, Outcome, RunLog
from ..steps import FlaggedStep, Scope, Step, UuidKey, columns_of, find_key, step_of
from .conditions import failing_conditions
from .delivery import MailStory, TaskStory, mail_stories, moment, task_stories


@dataclass(frozen=True)
class Finding:
    """One thing there is to say: a code for programs, a sentence for people."""

    code: str
    text: str


@dataclass(frozen=True)
class EventStory:
    """All there is to say about one event."""

    kind: str
    key: int
    key2: int
    is_notified: bool
    notified_at: datetime | None = None
    pass_id: str = ""
    findings: tuple[Finding, ...] = ()
    mails: tuple[MailStory, ...] = ()
    tasks: tuple[TaskStory, ...] = ()
    #: What people call the event, where its key is made of other columns.
    original_key: str = ""

    @property
    def name(self) -> str:
        """What the event is called."""
        return event_name(self.kind, self.key, self.key2, self.original_key)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The story as sentences, in the order things happened."""
        parts: list[MailStory | TaskStory] = [*self.mails, *self.tasks]
        return (*(finding.text for finding in self.findings), *(said for part in parts for said in part.sentences))


@dataclass(frozen=True)
class Explanation:
    """The answer for a key; several events when the kind tells them apart by key2 and none was given."""

    kind: str
    key: int
    key2: int | None
    events: tuple[EventStory, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as the command prints it and the API answers."""
        events = [{**asdict(event), "sentences": event.sentences} for event in self.events]
        return {"kind": self.kind, "key": self.key, "key2": self.key2, "events": events}


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """Where, when and by whom is asked: a member of these tenants, or (None) one who sees all."""

    using: str
    conf: Conf
    now: datetime
    tenants: Collection[str] | None = None


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
) -> Explanation:
    """
    Say for one event whether and when it was notified, by which pass, what became of it, or why it was not.

    ``tenants`` are those of the person who asks, None for one who sees all. Of an event of another tenant there is as
    little to say as of one that is nowhere: no story.
    """
    using = using or router.db_for_read(Control)
    now = dialect_of(connections[using]).now(connections[using])
    inquiry = Inquiry(using=using, conf=conf(), now=now, tenants=tenants)
    step = step_of(kind)
    controls = Control.objects.using(using).filter(kind=kind, key=key).order_by("key2")
    if key2 is not None:
        controls = controls.filter(key2=key2)
    known = list(controls)
    stories = [notified(control, inquiry) for control in known if tenants is None or control.tenant in tenants]
    asked = asked_key2s(step, key, key2, inquiry) or ({0} if not known and tenants is None else set())
    asked -= {control.key2 for control in known}
    stories += [not_notified(step, kind, key, other, inquiry) for other in sorted(asked)]
    return Explanation(kind, key, key2, tuple(stories))


def asked_key2s(step: Step | None, key: int, key2: int | None, inquiry: Inquiry) -> set[int]:
    """Return the discriminators that are asked for; a member of tenants gets those that are there and his only."""
    if key2 is not None and inquiry.tenants is None:
        return {key2}
    return present_key2s(step, key, inquiry, key2=key2)


def notified(control: Control, inquiry: Inquiry) -> EventStory:
    """Tell the story of an event that has its control row."""
    mails = tuple(mail_stories(control, using=inquiry.using, now=inquiry.now, is_whole=inquiry.tenants is None))
    tasks = tuple(task_stories(control, using=inquiry.using))
    parts: list[MailStory | TaskStory] = [*mails, *tasks]
    pass_id = next((part.pass_id for part in parts if part.pass_id), "")
    name = event_name(control.kind, control.key, control.key2, control.original_key)
    if mails or tasks:
        findings = [Finding("notified", prepared(name, control.created_at, pass_id, inquiry))]
    else:
        text = _(
            "Event %(event)s was marked as known on %(at)s without mail or task: by a baseline "
            "(notify_pass --baseline), or by hand. It will never be notified."
        )
        findings = [Finding("baseline", text % {"event": name, "at": moment(control.created_at)})]
    return EventStory(
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


def event_name(kind: str, key: int, key2: int, original_key: str = "") -> str:
    """Return what an event is called."""
    if original_key:
        return f"{kind} {original_key}"
    return f"{kind} {key}" + (f"/{key2}" if key2 else "")


def prepared(event: str, at: datetime, pass_id: str, inquiry: Inquiry) -> str:
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


def events_of(step: Step, inquiry: Inquiry) -> QuerySet[Any, Any]:
    """Return all events of a step, whenever they happened."""
    return step.keyed_events(Scope(now=inquiry.now), using=inquiry.using)


def not_notified(step: Step | None, kind: str, key: int, key2: int, inquiry: Inquiry) -> EventStory:
    """Tell why an event has no control row."""
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
            findings += why_waiting(step, found[0]["event_at"], inquiry)
        else:
            findings += why_no_candidate(step, key, key2, inquiry)
    return EventStory(kind, key, key2, False, findings=tuple(findings), original_key=original)


def why_no_candidate(step: Step, key: int, key2: int, inquiry: Inquiry) -> Iterator[Finding]:
    """Say which conditions of the step's query fail for the key."""
    events = events_of(step, inquiry)
    keys = {"key": key, "key2": key2} if "key2" in columns_of(step.events(Scope(now=inquiry.now))) else {"key": key}
    failing = failing_conditions(events, keys)
    if isinstance(step, FlaggedStep):
        rows = step.flagged_of(key=key, key2=key2, using=inquiry.using)
        if rows.exists() and not rows.filter(**{step.flag: False}).exists():
            text = _(
                "All its rows carry the flag “%(flag)s” although no message was prepared: it was handled elsewhere."
            )
            yield Finding("handled", text % {"flag": step.flag})
    if failing == []:
        yield Finding("no_row", _("It is not a candidate: there is no such row, or what it refers to is gone."))
    elif failing is None:
        yield Finding("not_a_candidate", _("It is not a candidate: the step's query does not give it."))
    else:
        for condition in failing:
            yield Finding("condition", _("It is not a candidate: %(condition)s.") % {"condition": condition})


def why_waiting(step: Step, event_at: datetime | None, inquiry: Inquiry) -> Iterator[Finding]:
    """Say why an event that is a candidate has not been prepared yet, or never will."""
    settings, now = inquiry.conf, inquiry.now
    limits = [limit for limit in (step.not_before, settings.NOT_BEFORE) if limit is not None]
    if limits and (event_at is None or event_at < max(limits)):
        text = _("It happened on %(at)s, before %(limit)s: older events are never notified.")
        yield Finding("before_not_before", text % {"at": moment(event_at), "limit": moment(max(limits))})
        return
    if step.is_windowed and (event_at is None or event_at < now - settings.LOOKBACK):
        last = RunLog.objects.using(inquiry.using).full().filter(step=step.kind).order_by("-started_at").first()
        if last:
            text = _(
                "It happened on %(at)s, longer ago than an ordinary pass looks back (%(lookback)s). A pass that looks "
                "at all events will find it after %(full_at)s, or now: notify_pass --full."
            )
        else:
            text = _(
                "It happened on %(at)s, longer ago than an ordinary pass looks back (%(lookback)s). The next pass "
                "looks at all events and will find it, or one that runs now: notify_pass --full."
            )
        full_at = moment(last.started_at + settings.FULL_EVERY) if last else ""
        values = {"at": moment(event_at), "lookback": settings.LOOKBACK, "full_at": full_at}
        yield Finding("outside_window", text % values)
    yield from why_breaker(step, event_at, inquiry)
    yield from why_unseen(step, event_at, inquiry)


def why_breaker(step: Step, event_at: datetime | None, inquiry: Inquiry) -> Iterator[Finding]:
    """Say whether older candidates fill the next pass."""
    limit = inquiry.conf.BREAKER if step.breaker is True else int(step.breaker)
    if not limit or event_at is None:
        return
    scope = Scope(now=inquiry.now)
    older = step.candidates(scope, not_before=None, using=inquiry.using).filter(event_at__lt=event_at).count()
    if older >= limit:
        text = (
            _("The circuit breaker lets %(limit)s of its kind through per pass, oldest first; %(older)s are before it.")
            if inquiry.tenants is None
            else _(
                "The circuit breaker lets %(limit)s of its kind through per pass, oldest first; "
                "as many or more are before it."
            )
        )
        yield Finding("behind_breaker", text % {"limit": limit, "older": older})


def why_unseen(step: Step, event_at: datetime | None, inquiry: Inquiry) -> Iterator[Finding]:
    """Say what the step's last runs have to do with it."""
    runs = RunLog.objects.using(inquiry.using).filter(step=step.kind)
    last = runs.order_by("-started_at", "-pk").first()
    if last is None:
        text = _("No pass has run step %(step)s yet, as far as the run log goes back.")
        yield Finding("no_pass", text % {"step": step.kind})
        return
    values = {"at": moment(last.started_at)}
    if last.outcome == Outcome.RUNNING:
        yield Finding("pass_running", _("A pass is running this step since %(at)s.") % values)
    elif last.outcome == Outcome.ERROR and inquiry.tenants is None:
        text = _("The step's last run on %(at)s failed: %(error)s")
        yield Finding("step_failed", text % {**values, "error": (last.error or "").split("\n", 1)[0]})
    elif last.outcome == Outcome.ERROR:
        # The error may quote whatever the step was at.
        yield Finding("step_failed", _("The step's last run on %(at)s failed.") % values)
    elif event_at is not None and event_at > last.started_at:
        yield Finding("not_seen_yet", _("No pass has looked since: the last one started on %(at)s.") % values)
    else:
        text = _("It is a candidate now; it was not when the last pass looked on %(at)s.")
        yield Finding("found_next", text % values)
