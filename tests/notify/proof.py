"""
What every proof of the engine asks afterwards: a small world with events of all four kinds, and whether it came right.

``make_world`` is lawful and small; ``assert_right`` states the promise: each event one message, never two, flags up,
log closed.
"""

import re
from collections import Counter
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.test import override_settings

from notify.messages.builder import make_messages
from notify.models import Control, MailQueue, RunLog, TaskQueue
from notify.passes.runner import run_pass
from notify.steps import Event, registered
from portal.models import Advice, AdviceState, Comment, Contact, LineState, Order, OrderLine
from tests.babelfish import is_stand_in
from tests.factories import NOW, make_advice, make_comment, make_contact, make_line, make_order

Key = tuple[str, int, int]

#: Children before parents, so that deleting in this order breaks no reference.
TABLES = (MailQueue, TaskQueue, Control, RunLog, Comment, Advice, OrderLine, Order, Contact)


def make_world(*, of_each: int = 3) -> set[Key]:
    """Make this many events of each kind, the oldest first; return their keys."""
    buyer, supplier = make_contact(name="buyer"), make_contact(name="supplier", language="pl")
    keys: set[Key] = set()
    for number in range(of_each):
        at = NOW - timedelta(minutes=of_each - number)
        order = make_order(buyer=buyer, supplier=supplier, registered_at=at)
        rejected = make_line(order=order, state=LineState.REJECTED, rejected_at=at, item="Bolt")
        line = make_line(order=order, item="Nut")
        advice = make_advice(order=order, state=AdviceState.ACCEPTED, accepted_at=at)
        comment = make_comment(line=line, recipient=buyer, created_at=at)
        keys |= {("order", order.pk, 0), ("rejected", rejected.pk, 0)}
        keys |= {("advice", advice.pk, 0), ("comment", line.pk, comment.pk)}
    return keys


def small_pass(chunk_rows: int = 2, **options: Any) -> str:
    """Run a pass at NOW whose chunks are small; return its outcome. Also what children run."""
    with override_settings(NOTIFY={**settings.NOTIFY, "CHUNK_ROWS": chunk_rows}):
        return run_pass(**{"now": NOW, **options}).outcome.value


def warm() -> None:
    """Read catalogues and templates and compile patterns, which takes longer than a whole pass."""
    for step in registered():
        for code, _ in settings.LANGUAGES:
            event = Event(step.kind, 1, 0, recipients="a@example.org", language=code, values=step.example)
            list(make_messages(step, [event]))


def clear_notified() -> None:
    """Forget every message and lower the flags: the world as it was before the first pass."""
    for model in (MailQueue, TaskQueue, Control, RunLog):
        model.objects.all().delete()
    OrderLine.objects.update(handled=False)


def clear_world() -> None:
    """Delete every row that a proof makes."""
    for model in TABLES:
        model.objects.all().delete()


def mails_of_events() -> Counter[Key]:
    """Return how many mails each event has."""
    return Counter(MailQueue.objects.values_list("control__kind", "control__key", "control__key2"))


def tasks_of_events() -> Counter[Key]:
    """Return how many tasks each event has."""
    return Counter(TaskQueue.objects.values_list("control__kind", "control__key", "control__key2"))


def controls() -> set[Key]:
    """Return the events that have a control row."""
    return set(Control.objects.values_list("kind", "key", "key2"))


def unmarked() -> int:
    """Return how many lines wait for their flag although their order has had its message."""
    notified = Control.objects.filter(kind="order").values("key")
    return OrderLine.objects.filter(handled=False, order__in=notified).count()


def assert_right(keys: set[Key], *, context: object = "") -> None:
    """Make sure that each of these events, and no other, has exactly one message, and that nothing is left open."""
    assert mails_of_events() == Counter(keys), context
    assert tasks_of_events() == Counter(key for key in keys if key[0] == "rejected"), context
    assert controls() == keys, context
    assert not OrderLine.objects.filter(handled=False).exists(), context
    assert not RunLog.objects.running().exists(), context


def has_row_locks() -> bool:
    """Whether several transactions may write at once; SQLite has one writer at a time."""
    return connection.vendor != "sqlite"


#: How another session begins a transaction by hand.
BEGIN = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "BEGIN", "microsoft": "BEGIN TRANSACTION"}
#: A comment of a line at a time, written by another session, which answers its id.
INSERT_COMMENT = {
    "postgresql": "INSERT INTO portal_comment (line_id, author, recipient, created_at)"
    " VALUES (%s, 'a', 'ann', %s) RETURNING id",
    "microsoft": "INSERT INTO portal_comment (line_id, author, recipient, created_at)"
    " OUTPUT inserted.id VALUES (%s, 'a', 'ann', %s)",
}
#: A line kept by another session, which whoever only reads may still read.
HOLD_LINE = {
    "postgresql": "SELECT 1 FROM portal_orderline WHERE id = {pk} FOR UPDATE",
    "microsoft": "SELECT 1 FROM portal_orderline WITH (UPDLOCK, ROWLOCK) WHERE id = {pk}",
}
#: What each says of a lock that was not given in time.
LOCK_TIMEOUT = re.compile(r"lock timeout|Lock request time out")
WAITED_FOR = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))",
    "microsoft": "SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id = @@SPID",
}


def is_waited_for(other: Any) -> bool:
    """Whether some session waits for the other one; a stand-in does not show it."""
    if is_stand_in():
        return True
    with other.cursor() as cursor:
        cursor.execute(WAITED_FOR[other.vendor])
        return bool(cursor.fetchone()[0])


def readers_wait() -> bool:
    """Whether a reader waits for rows that another transaction has written."""
    if connection.vendor != "microsoft" or is_stand_in():
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT is_read_committed_snapshot_on FROM sys.databases WHERE database_id = DB_ID()")
        return not cursor.fetchone()[0]
