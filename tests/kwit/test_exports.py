"""CSV: safe for every separator, and reversible."""

import csv
import io
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwit.exports import BOM, FORMULA, SEPARATORS, csv_cell, csv_lines, plain_cell, with_first_read
from tests.factories import NOW

SIGNS = set("=+-@\uff1d\uff0b\uff0d\uff20")


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t'=1"),
        ("\r=1", "'\r'=1"),
        ("\nx", "'\nx"),
        ("  =1", "  '=1"),
        ("\u00a0=1", "\u00a0'=1"),
        ("\uff1d1", "'\uff1d1"),
        ("'=1", "''=1"),
        ("x;=HYPERLINK(1)", "x;'=HYPERLINK(1)"),
        ("a;\ufeff=1", "a;\ufeff'=1"),
        ("\x00=1", "\x00'=1"),
        ("x\r\n=1+1", "x\r\n'=1+1"),
        ('x;"=1', "x;\"'=1"),
        ("x|@a,-b", "x|'@a,'-b"),
        ("x\u2028=1", "x\u2028'=1"),
        ("it's; 'so'", "it's; ''so'"),
        ("CHG-1", "CHG-1"),
        ("a=1", "a=1"),
        ("sold - out", "sold - out"),
        ("", ""),
        (" ", " "),
        (None, ""),
        (-5, -5),
        (0, 0),
        (2**63 - 1, 2**63 - 1),
        (True, "True"),
        (NOW, "2026-01-31T08:00:00+00:00"),
        ({"=": 1}, "{'=': 1}"),
    ],
)
def test_a_text_never_begins_like_a_formula_and_a_number_stays_one(value: Any, cell: Any) -> None:
    assert csv_cell(value) == cell
    assert type(csv_cell(value)) is type(cell)


def cells(line: str, separator: str, *, is_quoted: bool) -> list[str]:
    """Read a line as a spreadsheet does that has another separator, with quotes or blind to them."""
    if is_quoted:
        return [cell for row in csv.reader(io.StringIO(line, newline=""), delimiter=separator) for cell in row]
    return [cell for row in re.split("[\r\n]", line) for cell in row.split(separator)]


@given(st.text(st.sampled_from([*SIGNS, *",;|\t\r\n\"' xX1\u00a0\u2028"]), max_size=12))
def test_no_reader_finds_a_formula_and_the_text_comes_back(text: str) -> None:
    [_head, line] = csv_lines(["a", "b"], [[text, "z"]])

    assert plain_cell(csv_cell(text)) == text
    for separator in ",;|\t":
        for is_quoted in (True, False):
            for cell in cells(line, separator, is_quoted=is_quoted):
                assert cell.lstrip().lstrip('"').lstrip()[:1] not in SIGNS, (separator, is_quoted, line)


@given(st.text(max_size=60))
def test_any_text_comes_back(text: str) -> None:
    assert plain_cell(csv_cell(text)) == text


def test_every_cell_is_in_quotes() -> None:
    lines = list(csv_lines(["a", "b"], [['x "y", z\r\n=1', 7], ["=cmd|' /C calc'!A0", -1]]))

    assert lines[0] == f'{BOM}"a","b"\r\n'
    assert lines[1] == '"x ""y"", z\r\n\'=1","7"\r\n'
    assert lines[2] == '"\'=cmd|\' /C calc\'!A0","-1"\r\n'.replace("|' /C", "|'' /C")


@pytest.mark.parametrize("piece", [*SEPARATORS, " ", '"', "'", "=", ";=", ' "', "\n "])
def test_the_time_is_linear_in_the_length(piece: str) -> None:
    text = (piece * 300_000)[:300_000] + "x"
    begun = time.process_time()
    cell = csv_cell(text)

    assert plain_cell(cell) == text
    assert time.process_time() - begun < 5, "quadratic would be hours"


def test_the_signs_are_those_of_the_pattern() -> None:
    assert {*FORMULA.replace("\\", "")} == {*SIGNS, "'"}


def test_the_first_item_is_read_at_once_and_the_rest_when_asked_for() -> None:
    read = []
    items = with_first_read(read.append(n) or n for n in range(3))

    assert read == [0]
    assert list(items) == [0, 1, 2]
    assert list(with_first_read(iter(()))) == []
