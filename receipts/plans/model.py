"""
A plan: which rows are to be changed, as they were approved. Pure: no ORM, no SQL.

Every problem is found in one go and reported with its place. Types are strict, because a lenient reading is another
row: SQLite takes ``true``, ``1.0``, ``"01"`` and ``" 1"`` all for row 1.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import PurePath
from typing import Any, Protocol

from ..errors import Flaw, InvalidPlan, Words
from .canonical import FieldTarget, Target, canonical_targets, digest
from .limits import PLAN_BYTES_MAX, Flaws, shortened, visible
from .readers import MISSING, PLAIN_INTEGER, Content, Request, count_problem, json_place
from .sheets import REFUSED
from .subprocess import read_apart

ID_MAX = 2**63 - 1
#: One below the largest 32-bit integer, so that revision + 1 always fits.
REVISION_MAX = 2**31 - 2
QTY_MAX = 2**31 - 1
#: Characters. An index key on every database, and something that a person can still read out on the phone.
CHANGE_ID_CHARS_MAX = 64
TENANT_CHARS_MAX = 64
ACTOR_CHARS_MAX = 150
REASON_CHARS_MAX = 2_000
SUFFIXES = (".json", ".csv", ".xlsx")
NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")


def checked_key(text: str) -> str:
    """Return text that is fit to be a key: the same on every database, and visible as it is. Raises: ValueError."""
    if text != text.strip():
        raise ValueError(Words("has a blank at an end"))
    if not text.isprintable():
        raise ValueError(Words("has a character that is not printable"))
    if not unicodedata.is_normalized("NFC", text):
        raise ValueError(Words("is not in Unicode normal form C (NFC)"))
    return text


def checked_note(text: str) -> str:
    """Return text that every database can store. Raises: ValueError."""
    if NOT_STORABLE.search(text):
        raise ValueError(Words("has a character that cannot be stored"))
    return text


def checked_text(value: Any, *, chars_max: int, check: Callable[[str], str], is_required: bool) -> str:
    """Return a text of some length that passes a check. Raises: ValueError."""
    if value is MISSING:
        raise ValueError(Words("is missing"))
    if not isinstance(value, str):
        raise ValueError(Words("must be text, not %(given)s", given=shortened(value)))
    if is_required and not value:
        raise ValueError(Words("is empty"))
    if len(value) > chars_max:
        raise ValueError(Words("is longer than %(limit)s characters", limit=chars_max))
    return check(value)


def checked_integer(value: Any, *, low: int, high: int, is_text: bool) -> int:
    """
    Return an integer; in a table also its plainest spelling as text, and no other. Raises: ValueError.

    ``0010``, ``10.0`` and full-width digits are what spreadsheets and people make of an id: none of them is taken.
    """
    if is_text and type(value) is str and PLAIN_INTEGER.fullmatch(value):
        value = int(value)
    if type(value) is not int:
        raise ValueError(Words("must be an integer, not %(given)s", given=shortened(value)))
    if value < low:
        raise ValueError(Words("must be %(limit)s or more, not %(given)s", limit=low, given=shortened(value)))
    if value > high:
        raise ValueError(Words("must be %(limit)s or less, not %(given)s", limit=high, given=shortened(value)))
    return value


@dataclass(frozen=True)
class Column:
    """One column of a plan: its name, and the integers it takes."""

    name: str
    low: int
    high: int

    def parse(self, value: Any, *, is_text: bool) -> Any:
        """Return the value that stands in a plan; ``is_text``: in a table. Raises: ValueError."""
        return checked_integer(value, low=self.low, high=self.high, is_text=is_text)


COLUMNS = (Column("id", 1, ID_MAX), Column("revision", 0, REVISION_MAX), Column("qty", 0, QTY_MAX))


@dataclass(frozen=True)
class Plan:
    """A plan without flaws, its targets sorted by id."""

    change_id: str
    tenant: str
    targets: tuple[Target, ...]
    #: What was taken of its file although nobody sees it: hidden rows, columns and sheets, and formulas' last results.
    hidden: int = field(default=0, compare=False)
    formulas: int = field(default=0, compare=False)

    def reason(self, given: str) -> str:
        """Return a reason together with what was taken of the file, so that plan and receipt say it."""
        counts = [(self.formulas, "formulas"), (self.hidden, "hidden rows, columns or sheets")]
        taken = " and ".join(f"{count} {what}" for count, what in counts if count)
        return f"{given} (the file was taken with {taken})".strip() if taken else given

    @cached_property
    def canonical(self) -> str:
        """The targets in their canonical form."""
        return canonical_targets(self.targets)

    def digest(self, *, kind: str) -> str:
        """Return what identifies this plan as a change of that kind."""
        return digest(change_id=self.change_id, kind=kind, tenant=self.tenant, targets=self.canonical)


def check_origin(*, actor: str, reason: str) -> None:
    """
    Refuse an actor or a reason that the receipt could not keep.

    Raises: InvalidPlan.
    """
    flaws = Flaws()
    for name, value, chars_max in (("actor", actor, ACTOR_CHARS_MAX), ("reason", reason, REASON_CHARS_MAX)):
        check_text(flaws, name, value, chars_max=chars_max, check=checked_note, is_required=False)
    flaws.raise_any()


def check_text(flaws: Flaws, name: str, value: Any, *, where: str = "", **rules: Any) -> str:
    """Return a text, or an empty one after noting what is wrong with it."""
    try:
        return checked_text(value, **rules)
    except ValueError as error:
        given = "" if value is MISSING else shortened(value)
        flaws.add(Flaw(where or name, said_by(error), column=name, given=given))
        return ""


def check_author(author: str) -> None:
    """Refuse a plan that nobody has written. Raises: InvalidPlan."""
    if not author.strip():
        raise InvalidPlan([Flaw("author", Words("is empty: four eyes need to know whose the first two are"))])


class Shape(Protocol):
    """What a kind of change makes of a plan: its columns, and a target of their values."""

    @property
    def columns(self) -> Sequence[Any]: ...

    def target(self, row: list[Any]) -> Target: ...

    def row_of(self, target: Any) -> list[Any] | None: ...


class PlainShape:
    """The plan of a kind that compares revision and qty."""

    columns = COLUMNS

    def target(self, row: list[Any]) -> Target:
        """Return a target."""
        return Target(*row)

    def row_of(self, target: Any) -> list[Any] | None:
        """Return the values of a target, None for what is none."""
        is_plain = isinstance(target, Target) and not isinstance(target, FieldTarget)
        return [target.id, target.revision, target.qty] if is_plain else None


PLAIN = PlainShape()


def checked_plan(
    *, change_id: str, tenant: str, targets: Iterable[Target], targets_max: int, shape: Shape = PLAIN
) -> Plan:
    """
    Return the plan that these arguments make.

    Raises: InvalidPlan.
    """
    rows, numbers, flaws = [], [], Flaws()
    for at, target in enumerate(targets):
        row = shape.row_of(target)
        if row is not None:
            rows.append(row)
            numbers.append(at + 1)
        else:
            given, names = shortened(target), ", ".join(column.name for column in shape.columns)
            text = Words("must be a target with %(names)s, not %(given)s", names=names, given=given)
            flaws.add(Flaw(json_place(("targets", at)), text, at + 1))
    if not 1 <= len(rows) + len(flaws) <= targets_max:
        flaws.raise_any([Flaw("targets", count_problem(len(rows) + len(flaws), targets_max))])
    content = Content(rows=rows, numbers=numbers, names={"change_id": change_id, "tenant": tenant}, flaws=flaws)
    return plan_in(content, shape=shape)


def read_plan(
    data: bytes,
    *,
    name: str,
    targets_max: int,
    change_id: str | None = None,
    tenant: str | None = None,
    accept_hidden: bool = False,
    accept_formulas: bool = False,
    mapping: Mapping[str, str] | None = None,
    shape: Shape = PLAIN,
) -> Plan:
    """
    Read a plan file in a process of its own; its name tells the format, ``-`` being JSON.

    JSON brings change_id and tenant along; for CSV and XLSX they are arguments.

    Raises: InvalidPlan.
    """
    suffix = ".json" if name == "-" else PurePath(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidPlan([Flaw(visible(name), Words("is neither a .json nor a .csv nor an .xlsx file"))])
    if len(data) > PLAN_BYTES_MAX:
        text = Words("has more than %(limit)s bytes", limit=format(PLAN_BYTES_MAX, ","))
        raise InvalidPlan([Flaw(visible(name), text)])
    request = Request(
        suffix=suffix,
        columns=[column.name for column in shape.columns],
        targets_max=targets_max,
        accept_hidden=accept_hidden,
        accept_formulas=accept_formulas,
        mapping=mapping or {},
    )
    given = {key: value for key, value in (("change_id", change_id), ("tenant", tenant)) if value is not None}
    return plan_in(read_apart(data, request), given=given, shape=shape)


def plan_in(content: Content, *, given: Mapping[str, str] | None = None, shape: Shape = PLAIN) -> Plan:
    """
    Return the plan that a content makes; what is given beside the file must say the same as the file.

    Raises: InvalidPlan with every problem, in the order of the rows.
    """
    given, names, flaws, is_table = given or {}, content.names, Flaws(), bool(content.header)
    for key, value in given.items():
        if key in names and names[key] != value:
            text = Words(
                "is %(found)s in the file, but %(asked)s was asked for", found=shortened(names[key]), asked=repr(value)
            )
            flaws.add(Flaw(key, text))
    texts = {}
    for key, chars_max in (("change_id", CHANGE_ID_CHARS_MAX), ("tenant", TENANT_CHARS_MAX)):
        where = f"--{key.replace('_', '-')}" if is_table else key
        value = names.get(key, given.get(key, MISSING))
        texts[key] = check_text(
            flaws, key, value, where=where, chars_max=chars_max, check=checked_key, is_required=True
        )
    found: list[Flaw] = []
    values = checked_values(content, found, shape.columns)
    flaws += sorted([*found, *content.flaws], key=lambda flaw: flaw.row or 0)
    flaws.raise_any()
    targets = tuple(sorted(map(shape.target, values), key=itemgetter(0)))
    return Plan(
        change_id=texts["change_id"],
        tenant=texts["tenant"],
        targets=targets,
        hidden=content.hidden,
        formulas=content.formulas,
    )


def checked_values(content: Content, flaws: list[Flaw], columns: Sequence[Any]) -> list[list[Any]]:
    """Return the targets' values; add what is wrong with them."""
    limited, is_table = Flaws(), bool(content.header)
    values = []
    # Dates and codes are the same in many rows: each is parsed once. By type, because True is 1 for a dict.
    known: dict[tuple[str, type, Any], Any] = {}
    try:
        for at, row in enumerate(content.rows):
            checked = []
            for column, value in zip(columns, row, strict=True):
                if value is REFUSED:
                    continue
                try:
                    if value is MISSING:
                        raise ValueError(Words("is missing"))
                    if column.name == "id" or not isinstance(value, str):
                        checked.append(column.parse(value, is_text=is_table))
                        continue
                    key = (column.name, type(value), value)
                    if key not in known:
                        known[key] = column.parse(value, is_text=is_table)
                    checked.append(known[key])
                except ValueError as error:
                    shown = "" if value is MISSING else shortened(value)
                    limited.add(flaw_at(content, at, column.name, said_by(error), shown))
            values.append(checked)
        for at, pk in repeated_ids(content.rows, is_text=is_table):
            text = Words("id %(id)s stands in the plan more than once", id=pk)
            limited.add(flaw_at(content, at, "id", text, shortened(pk)))
    except InvalidPlan as error:
        flaws += error.flaws
        return []
    flaws += limited
    return values


def flaw_at(content: Content, at: int, column: str, problem: str, given: str) -> Flaw:
    """Return a problem of one value, with its place as the file names it."""
    number = content.numbers[at]
    if content.header:
        where = f"row {number}, column {content.header.index(column) + 1} ({column})"
    else:
        where = json_place(("targets", number - 1, column))
    return Flaw(where, problem, row=number, column=column, given=given)


def repeated_ids(rows: Sequence[Sequence[Any]], *, is_text: bool) -> list[tuple[int, Any]]:
    """Find ids that stand in a plan more than once; return each with its position."""
    ids = [
        int(row[0]) if is_text and type(row[0]) is str and PLAIN_INTEGER.fullmatch(row[0]) else row[0] for row in rows
    ]
    times = Counter(pk for pk in ids if type(pk) is int)
    if len(times) == len(ids):
        return []
    return [(at, pk) for at, pk in enumerate(ids) if type(pk) is int and times[pk] > 1]


def said_by(error: ValueError) -> str:
    """Return what a check of ours has said, which ``str`` would make plain text."""
    said: str = error.args[0]
    return said
