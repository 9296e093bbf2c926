"""Files and paper: numbers stay numbers, texts stay texts, and who took what is recorded."""

import contextlib
import csv
import io
import json
import re
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client

from kwit.exports import BOM
from kwit.models import Action
from portal.models import OrderLine
from receipts.models import Change, Reconciliation
from receipts.pages import receipts as receipts_page
from tests.factories import make_line
from tests.receipts.kept import ALL, WORK, drifted, keep, make_person, make_receipt
from tests.receipts.pages import EVIL, KEPT, LIST
from tests.receipts.plain import cancel, target

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(make_person("root", *WORK, ALL))
    return client


def sent(client: Client, address: str, **query: Any) -> bytes:
    answer = client.get(address, query)
    assert answer.status_code == 200, (address, answer.status_code)
    assert "no-store" in answer["Cache-Control"]
    return answer.getvalue() if answer.streaming else answer.content


#: Columns of numbers; every cell is in quotes.
NUMBERS = re.compile("target_id|targets|qty.*|revision.*|match|changed|missing")


def rows_of(data: bytes) -> list[dict[str, Any]]:
    """Read a CSV as a program would."""
    text = data.decode("utf-8")
    assert text.startswith(BOM)
    assert "\r\n" in text
    return [
        {name: int(cell) if cell and NUMBERS.fullmatch(name) else cell for name, cell in row.items()}
        for row in csv.DictReader(io.StringIO(text[1:], newline=""))
    ]


def printed(command: str, *arguments: str) -> str:
    out = io.StringIO()
    with contextlib.suppress(CommandError):  # some differ
        call_command(command, *arguments, "--json", stdout=out)
    return out.getvalue()


def test_a_receipt_as_csv_has_a_line_per_target(root: Client) -> None:
    one, two = make_line(), make_line(qty=0)
    cancel(target(one), target(two), change_id="=1+1", actor="@bob", reason="-sold\nout")

    rows = rows_of(sent(root, f"{LIST}_3D1_2B1/export/csv/"))

    assert [row["target_id"] for row in rows] == [one.pk, two.pk]
    assert (rows[0]["change_id"], rows[0]["actor"], rows[0]["reason"]) == ("'=1+1", "'@bob", "'-sold\nout")
    assert [rows[1][name] for name in ("revision_approved", "qty_approved", "revision_after", "qty")] == [4, 0, 5, 0]
    assert rows[0]["state_after"] == "cancelled"
    assert rows[0]["digest"] == Change.objects.get().digest


def test_a_receipt_as_json_is_what_inspect_change_prints(root: Client) -> None:
    drifted()

    assert sent(root, f"{LIST}CHG-1/export/json/").decode() == printed("inspect_change", "CHG-1")


def test_a_reconciliation_as_json_is_what_reconcile_prints(root: Client) -> None:
    drifted()
    kept = keep("CHG-1")

    given = sent(root, f"{KEPT}{kept.pk}/export/json/").decode()

    assert given == printed("reconcile", "CHG-1")
    OrderLine.objects.update(revision=77)
    assert sent(root, f"{KEPT}{kept.pk}/export/json/").decode() == given  # as of then


def test_a_reconciliation_as_csv_has_both_sides(root: Client) -> None:
    same, moved, gone = drifted()
    kept = keep("CHG-1")

    rows = rows_of(sent(root, f"{KEPT}{kept.pk}/export/csv/"))

    assert [(row["target_id"], row["category"]) for row in rows] == [
        (same.pk, "match"),
        (moved.pk, "changed"),
        (gone.pk, "missing"),
    ]
    assert (rows[1]["qty_recorded"], rows[1]["qty_current"], rows[2]["state_current"]) == (10, 3, "")


def test_a_row_with_a_negative_qty_stays_a_number(root: Client) -> None:
    line = make_line(state="cancelled", revision=5, qty=-3)
    make_receipt("CHG-1", ids=[line.pk])
    kept = keep("CHG-1")

    assert rows_of(sent(root, f"{KEPT}{kept.pk}/export/csv/"))[0]["qty_current"] == -3


def test_the_list_is_exported_as_filtered_page_by_page(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts_page, "CHUNK_ROWS", 2)
    for number in range(5):
        make_receipt(f"CHG-{number}", ids=[999])
        make_receipt(f"Z-{number}", tenant="zeta")
    keep("CHG-3")

    rows = rows_of(sent(root, f"{LIST}export/csv/", tenant="acme"))
    told = json.loads(sent(root, f"{LIST}export/json/", tenant="acme"))["receipts"]

    assert [row["change_id"] for row in rows] == [f"CHG-{number}" for number in (4, 3, 2, 1, 0)]
    assert [row["change_id"] for row in told] == [row["change_id"] for row in rows]
    assert [(row["last_reconciliation"], row["missing"]) for row in told[:2]] == [(None, None), ("differs", 1)]
    assert json.loads(sent(root, f"{LIST}export/json/", tenant="nobody")) == {"receipts": []}
    assert rows_of(sent(root, f"{LIST}export/csv/", differs="1"))[0]["change_id"] == "CHG-3"


def test_a_list_is_read_while_it_is_sent_and_one_broken_off_is_a_failed_action(
    root: Client, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(receipts_page, "CHUNK_ROWS", 2)
    for number in range(9):
        make_receipt(f"CHG-{number}")
    answer = root.get(f"{LIST}export/csv/")
    lines = iter(answer.streaming_content)

    with django_assert_num_queries(1):  # the record: the first page was read before the response began
        first = [next(lines) for _ in range(3)]
    assert first[2].startswith(b'"CHG-7"')
    assert Action.objects.get().outcome == "open"
    answer._iterator.close()

    action = Action.objects.get()
    assert (action.outcome, action.done, action.note) == ("failed", 2, "csv")


@pytest.mark.parametrize("query", ["since=yesterday", "until=%00", "differs=yes", "statee=x", "kind=cancel&page=2"])
def test_a_filter_that_is_not_understood_is_refused_before_the_file_begins(root: Client, query: str) -> None:
    answer = root.get(f"{LIST}export/csv/?{query}")

    assert (answer.status_code, answer.streaming) == (400, False)
    assert answer["Content-Type"].startswith("text/plain")
    assert not Action.objects.exists()


@pytest.mark.parametrize(("most", "status"), [(2, 400), (3, 200)])
def test_a_list_that_is_too_long_is_refused_before_the_file_begins(
    root: Client, monkeypatch: pytest.MonkeyPatch, most: int, status: int
) -> None:
    monkeypatch.setattr(receipts_page, "EXPORT_ROWS_MAX", most)
    for number in range(3):
        make_receipt(f"CHG-{number}")
    make_receipt("Z-1", tenant="zeta")

    assert root.get(f"{LIST}export/csv/", {"tenant": "acme"}).status_code == status


def test_a_query_that_fails_is_no_file_that_breaks_off(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    make_receipt("CHG-1")

    def fail(keys: Any) -> Any:
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(receipts_page, "look_up", fail)

    with pytest.raises(OperationalError):
        root.get(f"{LIST}export/json/")


def test_each_export_is_recorded(root: Client) -> None:
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")
    for address in (f"{LIST}CHG-1", f"{KEPT}{kept.pk}"):
        for shape in ("csv", "json", "print"):
            sent(root, f"{address}/export/{shape}/")
    sent(root, f"{LIST}export/csv/", kind="cancel")

    found = list(Action.objects.order_by("pk").values_list("actor", "name", "scope", "note", "tenant", "outcome"))

    assert len(found) == 7
    assert found[0] == ("root", "export", "CHG-1", "csv", "acme", "done")
    assert found[5] == ("root", "export", f"{kept.pk} (CHG-1)", "print", "acme", "done")
    assert found[6] == ("root", "export", "?kind=cancel", "csv", "", "done")


@pytest.mark.parametrize("shape", ["xlsx", "pdf", "CSV", "print"])
def test_there_are_no_other_forms(root: Client, shape: str) -> None:
    make_receipt("CHG-1")

    assert root.get(f"{LIST}export/{shape}/").status_code == 404
    if shape != "print":
        assert root.get(f"{LIST}CHG-1/export/{shape}/").status_code == 404


def test_a_files_name_is_harmless(root: Client) -> None:
    make_receipt('x"; filename=evil.exe\\..Ż')

    answer = root.get(f"{LIST}x_22_3B filename_3Devil.exe_5C..Ż/export/csv/")

    assert answer["Content-Disposition"] == ("attachment; filename*=utf-8''receipt-x_filename_evil.exe_..%C5%BB.csv")


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", ("qty approved", "state current")), ("pl", ("ilość zatwierdzona", "stan obecny"))],
)
def test_what_is_printed_has_the_readers_words_over_its_columns(
    root: Client, language: str, words: tuple[str, str]
) -> None:
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")

    for address, word in zip((f"{LIST}CHG-1/", f"{KEPT}{kept.pk}/"), words, strict=True):
        page = root.get(f"{address}export/print/", headers={"accept-language": language}).content.decode()
        assert f'<th scope="col">{word}</th>' in page
        assert "_" not in "".join(re.findall(r'<th scope="col">([^<]*)', page))


def test_the_page_to_print_has_the_digest_in_the_tables_head_and_nothing_inline(root: Client) -> None:
    make_receipt("CHG-1", ids=[999], reason=EVIL)
    kept = keep("CHG-1")
    digest = Change.objects.get().digest

    for address in (f"{LIST}CHG-1/export/print/", f"{KEPT}{kept.pk}/export/print/"):
        answer = root.get(address)
        page = answer.content.decode()
        head = page[page.index("<thead>") : page.index("</thead>")]
        assert digest in head
        assert 'href="/static/receipts/print.css"' in page
        assert "<style" not in page
        assert "style=" not in page
        assert "<script" not in page
        assert "style-src 'self'" in answer["Content-Security-Policy"]
    assert Reconciliation.objects.count() == 1
