"""The rows that each database's dialect must write; a dialect is done when these tests pass on its database."""

import json
import re
import threading
import uuid

import pytest
from django.db import IntegrityError, connection

from notify.dialects import base
from notify.dialects.base import ControlRow, MailRow, NotifyDialect, TaskRow
from notify.models import Control, MailQueue, TaskQueue
from tests.babelfish import stand_in_cannot
from tests.dialects.rows import control_id, rows_for
from tests.racing import race

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


def test_new_control_rows_are_told_with_their_ids(dialect):
    made = dialect.insert_controls(connection, "comment", rows_for([3, 1, 2]))

    assert made == {(row.key, row.key2): row.pk for row in Control.objects.all()}
    assert Control.objects.get(key=2).recipients == "2@example.org"
    assert Control.objects.get(key=2).created_at is not None


@stand_in_cannot("OPENJSON leaves the escapes of JSON texts in")
@pytest.mark.parametrize("texts", [NASTY, [*NASTY, '"'], ['"'], ['""', ""], ["\\"], ["", ""]])
def test_control_rows_arrive_as_they_were_sent_whatever_their_text(dialect, texts):
    dialect.insert_controls(
        connection, "nasty", [ControlRow(key, 0, "en", text, text[:64]) for key, text in enumerate(texts)]
    )

    found = Control.objects.order_by("key").values_list("recipients", "tenant")
    assert list(found) == [(text, text[:64]) for text in texts]


def test_very_many_long_rows_go_in_several_statements_and_all_arrive(dialect, monkeypatch):
    monkeypatch.setattr(base, "LIST_CHARS_MAX", 1000)
    row = MailRow(control_id(dialect), "t", "s", "[]", "en", json.dumps({"body": "x" * 400}), "queued", "")

    dialect.insert_mails(connection, uuid.uuid4(), [row._replace(subject=str(number)) for number in range(10)])

    assert list(MailQueue.objects.order_by("pk").values_list("subject", flat=True)) == [str(n) for n in range(10)]


def test_the_length_of_rows_is_reckoned_whatever_they_hold():
    rows = [("ab", None, 1, {"k": "abc"}, b"xyz"), (None, None, 2, None, b""), (5, None, 3, ["q"], None)]

    assert base.chars_in([]) == 0
    # The first column has a number among its texts, so that each is taken as it is written.
    assert base.chars_in(rows) == len("abNone5") + 3 * 8 + 3 * 8 + len("{'k': 'abc'}None['q']") + 3


def test_rows_that_are_there_already_are_left_alone_and_not_told(dialect):
    dialect.insert_controls(connection, "comment", [ControlRow(1, 0, "pl", "first@example.org")])

    made = dialect.insert_controls(connection, "comment", rows_for([1, 2]))

    assert set(made) == {(2, 0)}
    assert Control.objects.get(key=1).recipients == "first@example.org"


def test_an_event_is_its_kind_and_both_keys(dialect):
    dialect.insert_controls(connection, "comment", [ControlRow(1, 1, "", "")])

    assert set(dialect.insert_controls(connection, "comment", [ControlRow(1, 2, "", "")])) == {(1, 2)}
    assert set(dialect.insert_controls(connection, "advice", [ControlRow(1, 1, "", "")])) == {(1, 1)}
    assert Control.objects.count() == 3


def test_rows_carry_their_tenant_and_belong_to_none_without_one(dialect):
    made = dialect.insert_controls(
        connection,
        "whose",
        [ControlRow(1, 0, "", "", "acme"), ControlRow(2, 0, "", ""), ControlRow(3, 0, "", "", "日本")],
    )
    first, second, third = (made[key, 0] for key in (1, 2, 3))
    mails = [MailRow(pk, "t", "s", "[]", "en", "{}", "queued", "") for pk in (first, second)]
    tasks = [TaskRow(pk, "t", "a", "en", "{}") for pk in (third, second)]
    dialect.insert_mails(connection, uuid.uuid4(), [mails[0]._replace(tenant="acme"), mails[1]])
    dialect.insert_tasks(connection, uuid.uuid4(), [tasks[0]._replace(tenant="日本"), tasks[1]])

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


def test_kinds_are_compared_exactly(dialect):
    dialect.insert_controls(connection, "comment", rows_for([1]))

    assert dialect.insert_controls(connection, "Comment", rows_for([1]))


@pytest.mark.parametrize("key", [2**63 - 1, -(2**63), 2**53 + 1, 0, -1])
def test_keys_have_64_bits(dialect, key):
    made = dialect.insert_controls(connection, "wide", [ControlRow(key, key, "", "")])

    assert set(made) == {(key, key)}
    assert Control.objects.filter(kind="wide", key=key, key2=key).exists()


def test_no_rows_are_no_trouble(dialect):
    assert dialect.insert_controls(connection, "none", []) == {}
    dialect.insert_mails(connection, uuid.uuid4(), [])
    dialect.insert_tasks(connection, uuid.uuid4(), [])

    assert MailQueue.objects.count() == TaskQueue.objects.count() == 0


def test_five_thousand_rows_go_in_one_statement(dialect, django_assert_num_queries):
    with django_assert_num_queries(1):
        made = dialect.insert_controls(connection, "many", rows_for(list(range(5000))))

    assert len(made) == 5000


@stand_in_cannot("HOLDLOCK does nothing there")
def test_two_sessions_that_insert_the_same_event_make_it_once(dialect):
    """E3, the half without a rollback: the unique constraint decides, and only one session is told that it won."""
    outcomes = race(4, lambda _: len(dialect.insert_controls(connection, "raced", rows_for(list(range(50))))))

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


@stand_in_cannot("OPENJSON leaves the escapes of JSON texts in")
def test_mails_arrive_as_they_were_sent_whatever_their_text(dialect):
    pk, pass_id = control_id(dialect), uuid.uuid4()
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

    dialect.insert_mails(connection, pass_id, rows)

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
def test_tasks_arrive_as_they_were_sent_whatever_their_text(dialect):
    pk, pass_id = control_id(dialect), uuid.uuid4()

    dialect.insert_tasks(
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


def test_the_fast_way_writes_what_the_plain_way_writes(dialect):
    pk = control_id(dialect)
    mails = [
        MailRow(pk, "t", text, json.dumps([text]), "pl", json.dumps({"body": text}), "queued", "", "acme", notes)
        for text, notes in [("zażółć 注文 👩\u200d🔧", None), ("a\tb\\n\"'", json.dumps([{"code": "x"}])), ("", None)]
    ]
    tasks = [TaskRow(pk, mail.subject, "ann", "en", mail.payload, mail.tenant) for mail in mails]
    kept = [(MailQueue, "notify_mail_queue", mails), (TaskQueue, "notify_task_queue", tasks)]

    for model, table, rows in kept:
        fast, plain = uuid.uuid4(), uuid.uuid4()
        (dialect.insert_mails if model is MailQueue else dialect.insert_tasks)(connection, fast, rows)
        NotifyDialect.insert_rows(dialect, connection, table, type(rows[0]), plain, rows)

        names = type(rows[0])._fields
        written = [
            list(model.objects.filter(pass_id=pass_id).order_by("pk").values_list(*names)) for pass_id in (fast, plain)
        ]
        assert written[0] == written[1]
        assert len(written[0]) == len(rows)


def test_an_array_written_by_hand_is_the_one_of_the_driver():
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has arrays")
    from notify.dialects.postgresql import text_array

    texts = ["a", 'b"', "c\\", "", "NULL", "{x,y}", "zażółć 注文", "a\nb", "'"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::text[], %s::text[]", [text_array(texts), texts])
        assert cursor.fetchone() == (texts, texts)
