"""A week in the life of a site: what the pictures show and the journeys begin with."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

from django.contrib.auth.models import Permission, User
from django.utils import timezone

from notify.models import Control, MailQueue, RunLog, TaskQueue
from notify.notes import Note, note
from notify.passes.run_log import text_of

KINDS = ("order", "rejected", "advice", "comment")


def skipped_by(host: str) -> Note:
    """Return what is logged of a pass that found the lock held by a process of this host."""
    since = "2026-11-30T07:58:00+0000"
    return note("skipped", code=-1, holder=[note("holder_in_step", host=host, pid=4711, since=since, step="order")])


HELD = skipped_by("app-2")
HOLDER = HELD.english
PASSWORD = "only-for-tests"
#: Every ten minutes.
EVERY = timedelta(minutes=10)


def make_user(name: str, *permissions: str) -> User:
    """Make a person who may sign in and has these permissions."""
    user = User.objects.create_user(name, password=PASSWORD, is_staff=True)
    for label in permissions:
        app, codename = label.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    return user


ALL_TENANTS = "kwit.see_all_tenants"
VIEW = (
    ALL_TENANTS,
    *(
        f"notify.view_{model}"
        for model in ("control", "runlog", "mailqueue", "taskqueue", "channel", "delivery", "suppression")
    ),
)
OPERATE = (
    *VIEW,
    *(f"notify.{name}" for name in ("run_pass", "retry_mail", "finish_task", "resume_channel")),
    *("notify.add_suppression", "notify.delete_suppression", "kwit.view_action"),
)


def fill(*, passes: int = 200, events: int = 60, now: datetime | None = None, seed: int = 7) -> None:
    """Write passes up to now with errors and skips among them, and events with mails in every state."""
    now = now or timezone.now()
    random = Random(seed)
    rows = [row for number in range(passes) for row in pass_rows(number, now - (passes - number) * EVERY, random)]
    RunLog.objects.bulk_create(rows, batch_size=500)
    ids = [row.pass_id for row in rows if row.step == RunLog.WHOLE and row.mails]
    for number in range(1, events + 1):
        at = now - timedelta(minutes=events - number + 2)
        make_event(number, ids[number % len(ids)], at)


def pass_rows(number: int, at: datetime, random: Random) -> Iterator[RunLog]:
    """Yield a pass and its steps; some are skipped, one failed, one died."""
    pass_id = UUID(int=random.getrandbits(128), version=4)
    common = {"pass_id": pass_id, "host": "app-1", "pid": 100 + number}
    if number % 67 in (30, 31, 32, 33):
        yield RunLog(
            **common, step=RunLog.WHOLE, started_at=at, ended_at=at, ms=3, outcome="skipped", **text_of([HELD])
        )
        return
    total = mails = 0
    steps = []
    for kind in KINDS:
        ms = random.randint(4, 90)
        found = random.choice((0, 0, 1, 2, 5)) if kind != "comment" else random.choice((0, 1, 3, 8))
        begun = at + timedelta(milliseconds=total)
        failed = number % 89 == 41 and kind == "advice"
        steps.append(
            RunLog(
                **common,
                step=kind,
                started_at=begun,
                ended_at=begun + timedelta(milliseconds=ms),
                ms=ms,
                candidates=found,
                mails=0 if failed else found,
                tasks=found if kind == "rejected" else 0,
                outcome="error" if failed else "ok",
                error=TRACE if failed else None,
                is_full=number % 144 == 100,
            )
        )
        total += ms
        mails += 0 if failed else found
    has_died = number == 120
    bad = any(step.outcome == "error" for step in steps)
    yield RunLog(
        **common,
        step=RunLog.WHOLE,
        started_at=at,
        ended_at=at + timedelta(milliseconds=total),
        ms=None if has_died else total,
        candidates=sum(step.candidates for step in steps),
        mails=mails,
        tasks=sum(step.tasks for step in steps),
        outcome="error" if bad or has_died else "ok",
        error="died: the process ended without closing its pass" if has_died else "step advice failed" if bad else None,
    )
    yield from steps


TRACE = """OperationalError: no such column: portal_advice.accepted_at
Traceback (most recent call last):
  File "/srv/app/notify/passes/runner.py", line 187, in run_step
    prepare(step, replace(job, is_full=is_full), tally)
  File "/srv/app/notify/passes/writer.py", line 103, in prepare
    prepare_candidates(step, job, tally)
django.db.utils.OperationalError: no such column: portal_advice.accepted_at
"""


def make_event(number: int, pass_id: UUID, at: datetime) -> None:
    """Make one event with its mail, and a task for a rejected line."""
    kind = KINDS[number % len(KINDS)]
    address = f"person{number}@example.org"
    control = Control.objects.create(
        kind=kind, key=1000 + number, key2=number if kind == "comment" else 0, language="en", recipients=address
    )
    state, problem = "queued", ""
    if number % 12 == 1:
        state, problem, address = "blocked", "no recipient", ""
    MailQueue.objects.create(
        control=control,
        pass_id=pass_id,
        template=kind,
        subject=f"Order PO-{4700 + number}: new {kind}",
        recipients=[address] if address else [],
        language="en",
        payload={"number": f"PO-{4700 + number}"},
        state=state,
        problem=problem,
        created_at=at,
        due_at=at,
    )
    if kind == "rejected":
        TaskQueue.objects.create(
            control=control, pass_id=pass_id, title=f"Find another supplier for PO-{4700 + number}", assignee="aiko"
        )
