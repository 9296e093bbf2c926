"""Find a receipt, compare it with its rows, see what differs, open the history, print: in a real browser."""

import re
import zlib
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from portal.models import OrderLine
from receipts.models import Change, Reconciliation
from tests.browser.chromium import axe_findings
from tests.factories import make_line, make_many, make_order
from tests.receipts.kept import WORK, make_person, make_receipt
from tests.receipts.plain import cancel, target

pytestmark = pytest.mark.django_db(transaction=True)
Open = Callable[..., Page]


def test_reconcile_a_receipt_see_what_differs_and_print_it(open_page: Open) -> None:
    order = make_order()
    lines = make_many(
        OrderLine(order=order, tenant="acme", qty=10, revision=4, state="pending", handled=True) for _ in range(120)
    )
    cancel(*map(target, lines), change_id="CHG-4711", actor="olga", reason="sold out")
    OrderLine.objects.filter(pk=lines[1].pk).update(qty=3, revision=6)
    make_receipt("OTHER", ids=[make_line().pk])
    page = open_page(make_person("rita", *WORK, tenants=["acme"]))
    problems = []

    page.get_by_role("link", name="Receipts", exact=True).first.click()
    page.goto("/admin/receipts/change/")
    page.get_by_label("change_id").fill("CHG-4711")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("OTHER")).to_have_count(0)
    problems += axe_findings(page)
    page.get_by_role("link", name="CHG-4711").click()
    problems += axe_findings(page)
    page.get_by_role("button", name="Reconcile now").click()
    page.get_by_role("link", name="changed: 1").click()
    expect(page.locator("mark")).to_have_text(["≠ 6", "≠ 3"])
    problems += axe_findings(page)
    page.get_by_role("link", name="The receipt", exact=True).click()
    expect(page.get_by_role("heading", name="Earlier reconciliations")).to_be_visible()
    page.get_by_role("link", name="To print").click()
    expect(page.locator("thead code")).to_have_text(Change.objects.get(pk="CHG-4711").digest)
    problems += axe_findings(page)
    sheets = texts_of(page.pdf(prefer_css_page_size=True))

    assert problems == []
    assert Reconciliation.objects.get().actor == "rita"
    assert len(sheets) > 2
    digest = Change.objects.get(pk="CHG-4711").digest
    assert [sheet.count(digest) for sheet in sheets] == [1] * len(sheets)
    assert [f"{number} / {len(sheets)}" in sheet for number, sheet in enumerate(sheets, 1)] == [True] * len(sheets)


def texts_of(pdf: bytes) -> list[str]:
    """
    Return the text of each sheet of a PDF as Chromium writes it: glyphs by their fonts' ToUnicode tables.

    Enough for these pages, and no PDF library.
    """
    objects = {int(number): body for number, body in re.findall(rb"(?s)\n(\d+) 0 obj\b(.*?)\nendobj", b"\n" + pdf)}

    def stream(number: int) -> bytes:
        body = objects[number]
        data = body[body.index(b"stream\n") + 7 : body.rindex(b"\nendstream")]
        return zlib.decompress(data) if b"/FlateDecode" in body else data

    def table(font: int) -> dict[int, str]:
        found = re.search(rb"/ToUnicode (\d+) 0 R", objects[font])
        return glyphs(stream(int(found[1]))) if found else {}

    sheets = []
    for body in objects.values():
        if not re.search(rb"/Type /Page\b(?!s)", body):
            continue
        fonts = {name: table(int(number)) for name, number in re.findall(rb"/(F\d+) (\d+) 0 R", body)}
        text, font = "", {}
        content = re.search(rb"/Contents (\d+) 0 R", body)
        assert content
        for name, shown in re.findall(
            rb"/(F\d+) [\d.]+ Tf|((?:<[0-9A-F]+>|\[[^\]]*\]) *T[jJ])", stream(int(content[1]))
        ):
            if name:
                font = fonts.get(name, {})
            for run in re.findall(rb"<([0-9A-Fa-f]+)>", shown):
                text += "".join(font.get(int(run[at : at + 4], 16), "?") for at in range(0, len(run), 4))
        sheets.append(text)
    return sheets


def glyphs(table: bytes) -> dict[int, str]:
    """Return what each glyph stands for."""
    found: dict[int, str] = {}
    for block in re.findall(rb"(?s)beginbfchar\n(.*?)endbfchar", table):
        for glyph, letters in re.findall(rb"<([0-9A-F]+)> <([0-9A-F]+)>", block):
            found[int(glyph, 16)] = bytes.fromhex(letters.decode()).decode("utf-16-be")
    for block in re.findall(rb"(?s)beginbfrange\n(.*?)endbfrange", table):
        for first, last, letter in re.findall(rb"<([0-9A-F]+)> <([0-9A-F]+)> <([0-9A-F]+)>", block):
            for place in range(int(last, 16) - int(first, 16) + 1):
                found[int(first, 16) + place] = chr(int(letter, 16) + place)
    return found
