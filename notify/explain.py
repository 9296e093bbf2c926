"""Why this event was or was not notified, and what became of its message; reads only."""

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db import connections, router
from django.db.models import QuerySet

from .backends import room_for
from .conditions import failing_conditions
from .conf import Conf, conf
from .models import Control, Outcome, RunLog
from .steps import FlaggedStep, Scope, Step, columns_of, step_of
from .stories import MailStory, TaskStory, mail_stories, moment, task_stories


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
    now = room_for(connections[using]).now(connections[using])
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
    name = f"{control.kind} {control.key}" + (f"/{control.key2}" if control.key2 else "")
    findings = [
        Finding("notified", f"Event {name} was prepared on {moment(control.created_at)}{by_pass(pass_id, inquiry)}.")
    ]
    if not mails and not tasks:
        findings = [
            Finding(
                "baseline",
                f"Event {name} was marked as known on {moment(control.created_at)} without mail or task: by a baseline "
                "(notify_pass --baseline), or by hand. It will never be notified.",
            )
        ]
    return EventStory(
        control.kind, control.key, control.key2, True, control.created_at, pass_id, tuple(findings), mails, tasks
    )


def by_pass(pass_id: str, inquiry: Inquiry) -> str:
    """Return which pass it was and where it ran; the run log may have been pruned since."""
    if not pass_id:
        return ""
    if inquiry.tenants is not None:
        return f" by pass {pass_id}"
    row = RunLog.objects.using(inquiry.using).wholes().filter(pass_id=pass_id).first()
    where = f" on {row.host}, process {row.pid}" if row else ", whose log row has been pruned"
    return f" by pass {pass_id}{where}"


def present_key2s(step: Step | None, key: int, inquiry: Inquiry, *, key2: int | None = None) -> set[int]:
    """Return the discriminators that the step's query gives for a key now."""
    if step is None:
        return set()
    events = events_of(step, inquiry).filter(**({"key": key} if key2 is None else {"key": key, "key2": key2}))
    if inquiry.tenants is not None:
        events = events.filter(tenant__in=inquiry.tenants) if "tenant" in columns_of(events) else events.none()
    return {row["key2"] for row in events[:100]}


def events_of(step: Step, inquiry: Inquiry) -> QuerySet[Any, Any]:
    """Return all events of a step, whenever they happened."""
    return step.keyed_events(Scope(now=inquiry.now), using=inquiry.using)


def not_notified(step: Step | None, kind: str, key: int, key2: int, inquiry: Inquiry) -> EventStory:
    """Tell why an event has no control row."""
    if step is None:
        findings = [Finding("no_step", f"No app registers a step of kind {kind!r}, so nothing looks for such events.")]
    else:
        rows = events_of(step, inquiry).filter(key=key, key2=key2).values("event_at")[:1]
        name = f"{kind} {key}" + (f"/{key2}" if key2 else "")
        found = list(rows)
        findings = [Finding("not_notified", f"Event {name} has not been notified.")]
        if found:
            findings += why_waiting(step, found[0]["event_at"], inquiry)
        else:
            findings += why_no_candidate(step, key, key2, inquiry)
    return EventStory(kind, key, key2, False, findings=tuple(findings))


def why_no_candidate(step: Step, key: int, key2: int, inquiry: Inquiry) -> Iterator[Finding]:
    """Say which conditions of the step's query fail for the key."""
    events = events_of(step, inquiry)
    keys = {"key": key, "key2": key2} if "key2" in columns_of(step.events(Scope(now=inquiry.now))) else {"key": key}
    failing = failing_conditions(events, keys)
    if isinstance(step, FlaggedStep):
        rows = step.flagged().using(inquiry.using).filter(**{step.flag_key: key})
        if rows.exists() and not rows.filter(**{step.flag: False}).exists():
            text = (
                f"All its rows carry the flag {step.flag!r} although no message was prepared: it was handled elsewhere."
            )
            yield Finding("handled", text)
    if failing == []:
        yield Finding("no_row", "It is not a candidate: there is no such row, or what it refers to is gone.")
    elif failing is None:
        yield Finding("not_a_candidate", "It is not a candidate: the step's query does not give it.")
    else:
        for condition in failing:
            yield Finding("condition", f"It is not a candidate: {condition}.")


def why_waiting(step: Step, event_at: datetime | None, inquiry: Inquiry) -> Iterator[Finding]:
    """Say why an event that is a candidate has not been prepared yet, or never will."""
    settings, now = inquiry.conf, inquiry.now
    limits = [limit for limit in (step.not_before, settings.NOT_BEFORE) if limit is not None]
    if limits and (event_at is None or event_at < max(limits)):
        yield Finding(
            "before_not_before",
            f"It happened on {moment(event_at)}, before {moment(max(limits))}: older events are never notified.",
        )
        return
    if step.is_windowed and (event_at is None or event_at < now - settings.LOOKBACK):
        last = RunLog.objects.using(inquiry.using).filter(step=step.kind, is_full=True).order_by("-started_at").first()
        when = f"after {moment(last.started_at + settings.FULL_EVERY)}" if last else "at the next pass"
        yield Finding(
            "outside_window",
            f"It happened on {moment(event_at)}, longer ago than an ordinary pass looks back ({settings.LOOKBACK}). "
            f"A pass that looks at all events will find it {when}, or now: notify_pass --full.",
        )
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
        yield Finding(
            "behind_breaker",
            f"The circuit breaker lets {limit} of its kind through per pass, oldest first; "
            + (f"{older} are before it." if inquiry.tenants is None else "as many or more are before it."),
        )


def why_unseen(step: Step, event_at: datetime | None, inquiry: Inquiry) -> Iterator[Finding]:
    """Say what the step's last runs have to do with it."""
    runs = RunLog.objects.using(inquiry.using).filter(step=step.kind)
    last = runs.order_by("-started_at", "-pk").first()
    if last is None:
        yield Finding("no_pass", f"No pass has run step {step.kind} yet, as far as the run log goes back.")
    elif last.outcome == Outcome.RUNNING:
        yield Finding("pass_running", f"A pass is running this step since {moment(last.started_at)}.")
    elif last.outcome == Outcome.ERROR:
        # The error may quote whatever the step was at.
        reason = ": " + (last.error or "").split("\n", 1)[0] if inquiry.tenants is None else "."
        yield Finding("step_failed", f"The step's last run on {moment(last.started_at)} failed{reason}")
    elif event_at is not None and event_at > last.started_at:
        yield Finding("not_seen_yet", f"No pass has looked since: the last one started on {moment(last.started_at)}.")
    else:
        yield Finding(
            "found_next", f"It is a candidate now; it was not when the last pass looked on {moment(last.started_at)}."
        )
