"""What each database's room must do; a room is done when this passes on its database."""

import json
import re
import threading
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, DataError, IntegrityError, connection, models, transaction
from django.db.models import BooleanField, Case, DateTimeField, DecimalField, F, QuerySet, Value, When

from notify.backends import generic, room_for
from notify.backends.base import BUSY, GRANTED, ControlRow, MailRow, TaskRow
from notify.models import Control, MailQueue, TaskQueue
from portal.models import Comment, Contact, OrderLine
from tests.babelfish import stand_in_cannot
from tests.crashing import start_child
from tests.factories import NOW, make_contact, make_line, make_many
from tests.racing import race, until

pytestmark = pytest.mark.django_db(transaction=True)

NASTY = [
    'O\'Brien "the" buyer',
    "back\\slash \\u0041 \\n \\\\",
    "emoji 🧾 and 𐍈𐎀 and e\u0301",
    "{} [] {curly} %s %(name)s $1 :x ?",
    "comma, semicolon; 'NULL' null \ttab\r\nline",
    "'; DROP TABLE notify_control; --",
    "日本語 ąćęłńóśźż \u202e right to left",
]


@pytest.fixture
def room() -> Any:
    return room_for(connection)


def in_another_session(call: Any) -> Any:
    """Run a call in a thread with a connection of its own; raise what it raised."""
    (outcome,) = race(1, lambda _: call())
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def take_and_give_back() -> int:
    """Try to take the lock; give it back if it was granted; return the code."""
    room = room_for(connection)
    answer = room.try_lock(connection)
    if answer.is_granted:
        room.unlock(connection, answer.token)
    return answer.code


def hold_lock(marker: str) -> None:
    """Take the lock and keep it until killed (runs in a child); a row says that it is taken."""
    answer = room_for(connection).try_lock(connection)
    make_contact(name=marker if answer.is_granted else "refused")
    threading.Event().wait()


def test_the_clock_is_the_database_s_and_aware(room):
    before, told, after = room.now(connection), room.now(connection), datetime.now(UTC)

    assert told.tzinfo is not None
    assert before <= told
    assert abs(after - told) < timedelta(minutes=1)


def test_the_clock_moves_within_a_transaction(room):
    with transaction.atomic():
        first = room.now(connection)

        assert until(lambda: room.now(connection) > first)


def test_a_free_lock_is_granted_and_known_to_be_ours(room):
    room.check_session(connection)
    answer = room.try_lock(connection)

    assert (answer.code, answer.is_granted) == (GRANTED, True)
    assert room.is_locked(connection, answer.token)

    room.unlock(connection, answer.token)
    assert not room.is_locked(connection, answer.token)


def test_a_second_session_is_refused_at_once_and_gets_the_lock_when_it_is_given_back(room):
    answer = room.try_lock(connection)

    assert in_another_session(take_and_give_back) == BUSY

    room.unlock(connection, answer.token)
    assert in_another_session(take_and_give_back) == GRANTED


def test_the_session_that_has_the_lock_does_not_get_it_twice(room):
    answer = room.try_lock(connection)

    assert room.try_lock(connection).code == BUSY

    room.unlock(connection, answer.token)
    assert in_another_session(take_and_give_back) == GRANTED, "one release was not enough"


def test_the_lock_survives_commits_and_rollbacks(room):
    answer = room.try_lock(connection)

    with transaction.atomic():
        make_contact()
    with transaction.atomic():
        make_contact()
        transaction.set_rollback(True)

    assert room.is_locked(connection, answer.token)
    assert in_another_session(take_and_give_back) == BUSY
    room.unlock(connection, answer.token)


def test_of_many_sessions_exactly_one_gets_the_lock(room):
    everybody_asked = threading.Barrier(6)

    def attempt(_: int) -> int:
        answer = room.try_lock(connection)
        everybody_asked.wait(20)
        if answer.is_granted:
            room.unlock(connection, answer.token)
        return int(answer.code)

    assert sorted(race(6, attempt)) == [BUSY] * 5 + [GRANTED]


def test_a_lock_that_was_given_back_is_not_ours_when_another_session_has_it(room):
    """The old token neither counts as ownership nor takes the lock from the new holder."""
    answer = room.try_lock(connection)
    room.unlock(connection, answer.token)

    taken, done = threading.Event(), threading.Event()

    def other(_: int) -> bool:
        mine = room.try_lock(connection)
        taken.set()
        done.wait(20)
        is_mine = room.is_locked(connection, mine.token)
        room.unlock(connection, mine.token)
        return is_mine

    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.extend(race(1, other)))
    thread.start()
    assert taken.wait(20)
    try:
        assert not room.is_locked(connection, answer.token)
        room.unlock(connection, answer.token)
    finally:
        done.set()
        thread.join(20)

    assert outcome == [True]


def test_giving_back_twice_is_no_error(room):
    answer = room.try_lock(connection)

    room.unlock(connection, answer.token)
    room.unlock(connection, answer.token)

    assert take_and_give_back() == GRANTED


def test_another_process_is_refused_and_a_killed_holder_gives_the_lock_back(room):
    child = start_child("tests.backends.test_notify_rooms:hold_lock", "holder")
    try:
        until(lambda: Contact.objects.filter(name="holder").exists())

        assert room.try_lock(connection).code == BUSY
    finally:
        ended = child.sigkill()

    assert ended.killed
    answer = until(lambda: (answer := room.try_lock(connection)).is_granted and answer)
    room.unlock(connection, answer.token)


def values_of(queryset: QuerySet[Any, Any], *names: str, rows: int = 2) -> list[list[tuple[Any, ...]]]:
    return list(room_for(connection).stream(queryset, names=names, rows=rows))


def test_rows_come_in_lists_of_at_most_the_asked_size_in_the_order_of_the_query(room):
    for number in range(5):
        make_contact(name=f"n{number}")

    found = values_of(Contact.objects.order_by("-name").values("name", "email"), "email", "name")

    assert [[name for _, name in rows] for rows in found] == [["n4", "n3"], ["n2", "n1"], ["n0"]]
    assert found[0][0] == ("n4@example.org", "n4")


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_no_list_is_empty_and_no_row_is_lost_at_the_end_of_a_list(number):
    for _ in range(number):
        make_contact()

    found = values_of(Contact.objects.values("pk"), "pk")

    assert [len(rows) for rows in found] == [2] * (number // 2) + [1] * (number % 2)


def test_a_query_that_can_have_no_rows_gives_none():
    make_contact()

    assert values_of(Contact.objects.none().values("name"), "name") == []
    assert values_of(Contact.objects.filter(pk__in=[]).values("name"), "name") == []


def test_values_arrive_as_python_has_them():
    precise = datetime(2026, 1, 31, 8, 0, 0, 123456, tzinfo=UTC)
    make_line(rejected_at=precise, item="0017", qty=None, revision=2**31 - 1, handled=True)
    queryset = OrderLine.objects.values(
        "rejected_at",
        "item",
        "qty",
        "revision",
        "handled",
        price=Value(Decimal("12345.60"), DecimalField(max_digits=12, decimal_places=2)),
        big=Value(2**63 - 1, models.BigIntegerField()),
        is_early=Case(When(rejected_at__lt=NOW, then=True), default=False, output_field=BooleanField()),
        moment=Value(precise, DateTimeField()),
        same_name=F("order__tenant"),
    )
    names = list(queryset.query.values_select) + list(queryset.query.annotation_select)

    ((row,),) = values_of(queryset, *names)

    assert dict(zip(names, row, strict=True)) == {
        "rejected_at": precise,
        "item": "0017",
        "qty": None,
        "revision": 2**31 - 1,
        "handled": True,
        "price": Decimal("12345.60"),
        "big": 2**63 - 1,
        "is_early": False,
        "moment": precise,
        "same_name": "acme",
    }
    assert row[names.index("handled")] is True
    assert row[names.index("rejected_at")].tzinfo is not None


def test_the_result_is_that_of_one_moment_whatever_is_committed_meanwhile(room):
    for number in range(6):
        make_contact(name=f"n{number}")

    seen = []
    for rows in room.stream(Contact.objects.order_by("name").values("name"), names=["name"], rows=2):
        seen += [name for (name,) in rows]
        number = len(seen)
        in_another_session(lambda number=number: make_contact(name=f"n{number}-late"))
        with transaction.atomic(durable=True):
            Contact.objects.filter(name="n5").update(name="renamed")
            make_contact(name=f"own{number}")

    assert seen == [f"n{number}" for number in range(6)]
    assert Contact.objects.count() == 12


def test_the_caller_may_leave_a_stream_before_its_end_and_start_another(room):
    for _ in range(4):
        make_contact()

    chunks = room.stream(Contact.objects.values("pk"), names=["pk"], rows=1)
    next(chunks)
    chunks.close()

    assert len(values_of(Contact.objects.values("pk"), "pk")) == 2


def test_two_streams_can_be_open_at_once(room):
    for _ in range(2):
        make_contact()

    pairs = [
        (outer, inner)
        for outer in room.stream(Contact.objects.values("pk"), names=["pk"], rows=1)
        for inner in room.stream(Contact.objects.values("pk"), names=["pk"], rows=1)
    ]

    assert len(pairs) == 4


def rows_for(keys: list[int]) -> list[ControlRow]:
    return [ControlRow(key, 0, "en", f"{key}@example.org") for key in keys]


def test_new_control_rows_are_told_with_their_ids(room):
    made = room.insert_controls(connection, "comment", rows_for([3, 1, 2]))

    assert made == {(row.key, row.key2): row.pk for row in Control.objects.all()}
    assert Control.objects.get(key=2).recipients == "2@example.org"
    assert Control.objects.get(key=2).created_at is not None


@stand_in_cannot("OPENJSON leaves the escapes of JSON texts in")
@pytest.mark.parametrize("texts", [NASTY, [*NASTY, '"'], ['"'], ['""', ""], ["\\"], ["", ""]])
def test_control_rows_arrive_as_they_were_sent_whatever_their_text(room, texts):
    room.insert_controls(
        connection, "nasty", [ControlRow(key, 0, "en", text, text[:64]) for key, text in enumerate(texts)]
    )

    found = Control.objects.order_by("key").values_list("recipients", "tenant")
    assert list(found) == [(text, text[:64]) for text in texts]


def test_lists_of_long_texts_are_short_and_few_rows_are_fetched_at_once(room, monkeypatch):
    monkeypatch.setattr(generic, "LIST_CHARS_MAX", 1000)
    monkeypatch.setattr(generic, "FETCH_ROWS_FIRST", 2)
    line = make_line()
    make_many(Comment(line=line, author="a", body="x" * length) for length in [400] * 10 + [10] * 40)

    found = values_of(Comment.objects.order_by("pk").values("body"), "body", rows=20)

    assert [len(body) for rows in found for (body,) in rows] == [400] * 10 + [10] * 40
    # The row that is one too many ends a list.
    assert [len(rows) for rows in found[:3]] == [3, 3, 3]
    assert max(len(rows) for rows in found) == 20


def test_very_many_long_rows_go_in_several_statements_and_all_arrive(room, monkeypatch):
    monkeypatch.setattr(generic, "LIST_CHARS_MAX", 1000)
    row = MailRow(control_id(room), "t", "s", "[]", "en", json.dumps({"body": "x" * 400}), "queued", "")

    room.insert_mails(connection, uuid.uuid4(), [row._replace(subject=str(number)) for number in range(10)])

    assert list(MailQueue.objects.order_by("pk").values_list("subject", flat=True)) == [str(n) for n in range(10)]


def test_the_length_of_rows_is_reckoned_whatever_they_hold():
    rows = [("ab", None, 1, {"k": "abc"}, b"xyz"), (None, None, 2, None, b""), (5, None, 3, ["q"], None)]

    assert generic.chars_in([]) == 0
    # The first column has a number among its texts, so that each is taken as it is written.
    assert generic.chars_in(rows) == len("abNone5") + 3 * 8 + 3 * 8 + len("{'k': 'abc'}None['q']") + 3


def test_rows_that_are_there_already_are_left_alone_and_not_told(room):
    room.insert_controls(connection, "comment", [ControlRow(1, 0, "pl", "first@example.org")])

    made = room.insert_controls(connection, "comment", rows_for([1, 2]))

    assert set(made) == {(2, 0)}
    assert Control.objects.get(key=1).recipients == "first@example.org"


def test_an_event_is_its_kind_and_both_keys(room):
    room.insert_controls(connection, "comment", [ControlRow(1, 1, "", "")])

    assert set(room.insert_controls(connection, "comment", [ControlRow(1, 2, "", "")])) == {(1, 2)}
    assert set(room.insert_controls(connection, "advice", [ControlRow(1, 1, "", "")])) == {(1, 1)}
    assert Control.objects.count() == 3


def test_rows_carry_their_tenant_and_belong_to_none_without_one(room):
    made = room.insert_controls(
        connection,
        "whose",
        [ControlRow(1, 0, "", "", "acme"), ControlRow(2, 0, "", ""), ControlRow(3, 0, "", "", "日本")],
    )
    first, second, third = (made[key, 0] for key in (1, 2, 3))
    mails = [MailRow(pk, "t", "s", "[]", "en", "{}", "queued", "") for pk in (first, second)]
    tasks = [TaskRow(pk, "t", "a", "en", "{}") for pk in (third, second)]
    room.insert_mails(connection, uuid.uuid4(), [mails[0]._replace(tenant="acme"), mails[1]])
    room.insert_tasks(connection, uuid.uuid4(), [tasks[0]._replace(tenant="日本"), tasks[1]])

    assert dict(Control.objects.values_list("pk", "tenant")) == {first: "acme", second: "", third: "日本"}
    assert dict(MailQueue.objects.values_list("control", "tenant")) == {first: "acme", second: ""}
    assert dict(TaskQueue.objects.values_list("control", "tenant")) == {third: "日本", second: ""}


@pytest.mark.parametrize("model", [Control, MailQueue, TaskQueue])
def test_a_tenant_s_list_is_read_by_its_index_and_a_row_of_nobody_is_not_in_it(model):
    if connection.vendor != "postgresql":
        pytest.skip("partial on PostgreSQL only")
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        try:
            # Without an order no other index would do, whatever statistics the tests before have left.
            plan = model.objects.filter(tenant__in=["acme", "globex"]).explain()
        finally:
            cursor.execute("RESET ALL")
        cursor.execute(
            "SELECT indexdef FROM pg_indexes WHERE tablename = %s AND indexdef LIKE '%%(tenant, %%'",
            [model._meta.db_table],
        )
        definitions = [definition for (definition,) in cursor.fetchall()]

    assert re.search(rf"ix_{model._meta.db_table}_(tenant|whose)", plan), plan
    assert definitions
    assert all("WHERE (NOT" in definition or "<> ''" in definition for definition in definitions), definitions


def test_kinds_are_compared_exactly(room):
    room.insert_controls(connection, "comment", rows_for([1]))

    assert room.insert_controls(connection, "Comment", rows_for([1]))


@pytest.mark.parametrize("key", [2**63 - 1, -(2**63), 2**53 + 1, 0, -1])
def test_keys_have_64_bits(room, key):
    made = room.insert_controls(connection, "wide", [ControlRow(key, key, "", "")])

    assert set(made) == {(key, key)}
    assert Control.objects.filter(kind="wide", key=key, key2=key).exists()


def test_no_rows_are_no_trouble(room):
    assert room.insert_controls(connection, "none", []) == {}
    room.insert_mails(connection, uuid.uuid4(), [])
    room.insert_tasks(connection, uuid.uuid4(), [])

    assert MailQueue.objects.count() == TaskQueue.objects.count() == 0


def test_five_thousand_rows_go_in_one_statement(room, django_assert_num_queries):
    with django_assert_num_queries(1):
        made = room.insert_controls(connection, "many", rows_for(list(range(5000))))

    assert len(made) == 5000


@stand_in_cannot("HOLDLOCK does nothing there")
def test_two_sessions_that_insert_the_same_event_make_it_once(room):
    """E3, the half without a rollback: the unique constraint decides, and only one session is told that it won."""
    outcomes = race(4, lambda _: len(room.insert_controls(connection, "raced", rows_for(list(range(50))))))

    assert sum(outcomes) == 50
    assert Control.objects.filter(kind="raced").count() == 50


def test_without_the_constraint_s_help_the_same_race_is_lost():
    """The positive control: look first, insert then, and a refusal or a double is what comes of it."""
    looked = threading.Barrier(4)

    def naive(_: int) -> str:
        is_there = Control.objects.filter(kind="naive", key=1).exists()
        looked.wait(20)
        if not is_there:
            Control.objects.create(kind="naive", key=1)
        return "made"

    outcomes = race(4, naive)

    assert sum(isinstance(outcome, IntegrityError) for outcome in outcomes) == 3


def control_id(room: Any) -> int:
    ((_, pk),) = room.insert_controls(connection, "queue", rows_for([1])).items()
    return int(pk)


@stand_in_cannot("OPENJSON leaves the escapes of JSON texts in")
def test_mails_arrive_as_they_were_sent_whatever_their_text(room):
    pk, pass_id = control_id(room), uuid.uuid4()
    rows = [
        MailRow(
            control_id=pk,
            template="comment",
            subject=text,
            recipients='["ann@example.org", "Bob <b@example.org>"]',
            language="pl",
            payload='{"text": ' + quoted(text) + ', "n": 12345678901234567, "none": null}',
            state="queued",
            problem=text,
        )
        for text in NASTY
    ]

    room.insert_mails(connection, pass_id, rows)

    mails = list(MailQueue.objects.order_by("pk"))
    assert [mail.subject for mail in mails] == NASTY
    assert [mail.problem for mail in mails] == NASTY
    assert [mail.payload for mail in mails] == [{"text": text, "n": 12345678901234567, "none": None} for text in NASTY]
    assert {(mail.control_id, mail.pass_id, mail.language, mail.state, mail.attempts) for mail in mails} == {
        (pk, pass_id, "pl", "queued", 0)
    }
    assert mails[0].recipients == ["ann@example.org", "Bob <b@example.org>"]
    assert mails[0].due_at is not None
    assert mails[0].created_at is not None


@stand_in_cannot("OPENJSON leaves the escapes of JSON texts in")
def test_tasks_arrive_as_they_were_sent_whatever_their_text(room):
    pk, pass_id = control_id(room), uuid.uuid4()

    room.insert_tasks(
        connection,
        pass_id,
        [TaskRow(pk, text, text[:50], "ja", '{"text": ' + quoted(text) + "}") for text in NASTY],
    )

    tasks = list(TaskQueue.objects.order_by("pk"))
    assert [(task.title, task.assignee, task.payload) for task in tasks] == [
        (text, text[:50], {"text": text}) for text in NASTY
    ]
    assert {(task.pass_id, task.done_at, task.done_by) for task in tasks} == {(pass_id, None, "")}


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def test_queue_rows_that_break_a_rule_are_a_refusal_and_none_is_kept(room):
    good = MailRow(control_id(room), "t", "s", "[]", "en", "{}", "queued", "")

    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        room.insert_mails(connection, uuid.uuid4(), [good, good._replace(state="unheard")])

    assert room.is_refusal(refused.value)
    assert not room.is_transient(refused.value)
    assert MailQueue.objects.count() == 0


def test_a_queue_row_cannot_be_of_no_event(room):
    with pytest.raises(IntegrityError), transaction.atomic():
        room.insert_mails(connection, uuid.uuid4(), [MailRow(10**9, "t", "s", "[]", "en", "{}", "queued", "")])


def test_a_row_lock_that_is_not_given_is_worth_another_try(room):
    line = make_line()
    held, tried = threading.Event(), threading.Event()

    def holder() -> None:
        with transaction.atomic():
            OrderLine.objects.filter(pk=line.pk).update(qty=1)
            held.set()
            tried.wait(20)

    thread = threading.Thread(target=lambda: race(1, lambda _: holder()))
    thread.start()
    assert held.wait(20)
    try:
        with short_patience(), pytest.raises(DatabaseError) as refused:
            update_as_a_pass(line)
    finally:
        tried.set()
        thread.join(20)

    assert room.is_transient(refused.value)
    assert not room.is_refusal(refused.value)


def update_as_a_pass(line: OrderLine) -> None:
    with transaction.atomic():
        room_for(connection).yield_to_others(connection)
        OrderLine.objects.filter(pk=line.pk).update(qty=2)


class short_patience:  # noqa: N801 - reads as the sentence it stands in
    """SQLite waits by its busy timeout, 20 s in the settings; a test does not."""

    def __enter__(self) -> None:
        self.set(50)

    def __exit__(self, *_: Any) -> None:
        self.set(20_000)

    def set(self, timeout_ms: int) -> None:
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {timeout_ms}")


def test_a_deadlock_is_worth_another_try_and_the_pass_is_its_victim(room):
    if not connection.features.has_select_for_update:
        pytest.skip("one writer at a time: there are no deadlocks")
    first, second = make_line(), make_line()
    both_hold = threading.Barrier(2)

    def racer(number: int) -> None:
        mine, other = (first, second) if number == 0 else (second, first)
        with transaction.atomic():
            if number == 0:
                room.yield_to_others(connection)
            OrderLine.objects.filter(pk=mine.pk).update(qty=1)
            both_hold.wait(20)
            OrderLine.objects.filter(pk=other.pk).update(qty=2)

    outcomes = race(2, racer)

    errors = [outcome for outcome in outcomes if outcome is not None]
    assert len(errors) == 1
    assert room.is_transient(errors[0])


def test_what_repeating_does_not_cure_is_not_transient(room):
    with pytest.raises(DatabaseError) as wrong, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM notify_control")

    assert not room.is_transient(wrong.value)
    assert not room.is_refusal(wrong.value)


def test_a_refusal_by_a_trigger_is_a_refusal(room, refusing_trigger):
    refusing_trigger("notify_mail_queue", "subject", "refuse me")
    row = MailRow(control_id(room), "t", "refuse me", "[]", "en", "{}", "queued", "")

    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        room.insert_mails(connection, uuid.uuid4(), [row])

    assert room.is_refusal(refused.value)
    assert not room.is_transient(refused.value)


def test_a_text_that_is_too_long_is_a_refusal_where_the_database_minds(room):
    if connection.vendor == "sqlite":
        pytest.skip("takes texts of any length")
    row = MailRow(control_id(room), "t", "x" * 256, "[]", "en", "{}", "queued", "")

    with pytest.raises(DataError) as refused, transaction.atomic():
        room.insert_mails(connection, uuid.uuid4(), [row])

    assert room.is_refusal(refused.value)
