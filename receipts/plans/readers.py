"""
Plan files as plain rows. Runs in the child process that `subprocess` starts: nothing here knows Django.

A reader finds rows and names places; whether a value is one that its column takes is decided by ``model``.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ..errors import Flaw, InvalidPlan, Words
from .limits import CELL_CHARS_MAX, COLUMNS_MAX, DEPTH_MAX, Flaws, refusal, shortened, visible
from .sheets import REFUSED, Number, Table, csv_rows, decoded

PLAIN_INTEGER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
#: An id as text, for whoever's numbers are floating point: 2**53 + 1 is none there.
ID_TEXT = "id_str"
PLAN_KEYS = ("change_id", "tenant", "targets")


class Missing:
    """In place of a value that is not there."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = Missing()


class Other(str):
    """A list or an object in place of a value, as it is shown."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of a reader: the format, the columns of the kind, and the limits of the site."""

    suffix: str
    columns: Sequence[str]
    targets_max: int
    accept_hidden: bool = False
    accept_formulas: bool = False
    #: A column's name in the file, and what it is here.
    mapping: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a file says: one list of values per target, in the order of the columns asked for."""

    rows: Sequence[Sequence[Any]]
    #: The number of each target's row; in JSON its position from 1.
    numbers: Sequence[int]
    #: change_id and tenant, as far as the file brings them along.
    names: Mapping[str, Any] = field(default_factory=dict)
    #: The columns of a table as its header has them; empty for JSON.
    header: Sequence[str] = ()
    flaws: Sequence[Flaw] = ()
    hidden: int = 0
    formulas: int = 0


def read_content(data: bytes, request: Request) -> Content:
    """Read a plan file. Raises: InvalidPlan, and whatever a broken file makes of a reader."""
    if request.suffix == ".json":
        return read_json(data, request)
    table = Table()
    if request.suffix == ".csv":
        return read_table(csv_rows(data, table), table, request)
    # Half the start of the process is openpyxl; CSV and JSON need not wait for it.
    from .workbook import xlsx_rows

    rows = xlsx_rows(data, table, accept_hidden=request.accept_hidden, accept_formulas=request.accept_formulas)
    return read_table(rows, table, request)


def count_problem(count: int, targets_max: int) -> Words:
    """Say that a plan has too few or too many targets."""
    return Words(
        "has %(count)s targets; a change has from 1 to %(limit)s",
        count=format(count, ","),
        limit=format(targets_max, ","),
    )


def read_table(rows: Iterable[tuple[int, list[Any]]], table: Table, request: Request) -> Content:
    """Turn numbered rows, the first being the header, into a plan's content."""
    header: list[str] = []
    order: list[int] = []
    found, numbers, count = [], [], 0
    for number, cells in rows:
        if not header:
            header = checked_header(number, cells, request)
            order = [header.index(name) if name in header else -1 for name in request.columns]
            continue
        count += 1
        if len(cells) < len(header) and request.suffix == ".xlsx":
            cells += [""] * (len(header) - len(cells))
        if len(cells) != len(header):
            text = Words("has %(count)s cells instead of %(wanted)s", count=len(cells), wanted=len(header))
            table.flaws.add(Flaw(f"row {number}", text, row=number))
        elif count <= request.targets_max:
            found.append([cells[at] if at >= 0 else MISSING for at in order])
            numbers.append(number)
    if not header:
        raise refusal(Words("is empty; it needs a first row with %(names)s", names=", ".join(request.columns)))
    if not 1 <= count <= request.targets_max:
        problem = Flaw("targets", count_problem(count, request.targets_max))
        return Content(rows=(), numbers=(), header=header, flaws=[*table.flaws, problem])
    return Content(
        rows=found,
        numbers=numbers,
        header=header,
        flaws=[named(flaw, header) for flaw in table.flaws],
        hidden=table.hidden,
        formulas=table.formulas,
    )


def named(flaw: Flaw, header: Sequence[str]) -> Flaw:
    """Return a problem of a cell with the name of its column."""
    at = int(flaw.column) if flaw.column.isdigit() else 0
    if not 0 < at <= len(header) or flaw.row is None:
        return flaw
    name = header[at - 1]
    return replace(flaw, where=f"row {flaw.row}, column {at} ({name})", column=name)


def checked_header(number: int, cells: Sequence[Any], request: Request) -> list[str]:
    """Return the columns' names. Raises: InvalidPlan when they are not those of the kind."""
    names = [request.mapping.get(cell, cell) if isinstance(cell, str) else cell for cell in cells]
    known = ", ".join(request.columns)
    flaws = Flaws()
    for at, name in enumerate(names, 1):
        if name not in request.columns:
            given = shortened(name)
            text = Words("%(name)s is not one of the columns %(known)s", name=given, known=known)
            flaws.add(Flaw(f"row {number}, column {at}", text, row=number, column=str(at), given=given))
    where = f"row {number}"
    for name in request.columns:
        if name not in names:
            flaws.add(Flaw(where, Words("column %(name)s is missing", name=name), row=number, column=name))
        elif names.count(name) > 1:
            flaws.add(Flaw(where, Words("column %(name)s is there twice", name=name), row=number, column=name))
    flaws.raise_any()
    return names


class Repeats(dict[str, Any]):
    """A JSON object in which a key was given twice: the standard parser would keep the last and say nothing."""

    repeated: tuple[str, ...] = ()


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object, remembering keys that came more than once. Raises: InvalidPlan when it has too many."""
    if len(pairs) > COLUMNS_MAX:
        text = Words("has an object of %(count)s keys; up to %(limit)s are read", count=len(pairs), limit=COLUMNS_MAX)
        raise refusal(text)
    built = dict(pairs)
    if len(built) == len(pairs):
        return built
    marked = Repeats(built)
    marked.repeated = tuple(sorted(key for key, times in Counter(key for key, _ in pairs).items() if times > 1))
    return marked


def json_place(loc: Sequence[int | str]) -> str:
    """Name a place as JavaScript would: ``targets[0].id``."""
    place = ""
    for step in loc:
        place += f"[{step}]" if isinstance(step, int) else f".{visible(step)}" if place else visible(step)
    return place or Words("the plan")


def refuse_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not JSON")


def read_json(data: bytes, request: Request) -> Content:
    """Read a JSON object. Raises: InvalidPlan."""
    try:
        plan = json.loads(
            decoded(data), object_pairs_hook=json_object, parse_constant=refuse_constant, parse_float=Number
        )
    except (ValueError, RecursionError) as error:
        raise refusal(Words("is not JSON: %(error)s", error=visible(str(error)))) from error
    if not isinstance(plan, dict):
        raise refusal(Words("must be an object with change_id, tenant and targets"), Words("the plan"))
    flaws = Flaws()
    for key in getattr(plan, "repeated", ()):
        flaws.add(Flaw(json_place((key,)), Words("is given more than once")))
    for key in plan:
        if key not in PLAN_KEYS:
            flaws.add(Flaw(json_place((key,)), Words("is not known here")))
    names = {key: single(plan[key]) for key in ("change_id", "tenant") if key in plan}
    targets = plan.get("targets", MISSING)
    if not isinstance(targets, list):
        text = (
            Words("is missing")
            if targets is MISSING
            else Words("must be a list, not %(given)s", given=shortened(single(targets)))
        )
        return Content(rows=(), numbers=(), names=names, flaws=[*flaws, Flaw("targets", text)])
    if not 1 <= len(targets) <= request.targets_max:
        # Not looked into any further: there may be millions.
        flaws.append(Flaw("targets", count_problem(len(targets), request.targets_max)))
        return Content(rows=(), numbers=(), names=names, flaws=flaws)
    rows, numbers = [], []
    for at, target in enumerate(targets):
        if isinstance(target, dict):
            rows.append(json_row(at, target, request.columns, flaws))
            numbers.append(at + 1)
        else:
            given = shortened(single(target))
            text = Words("must be an object, not %(given)s", given=given)
            flaws.add(Flaw(json_place(("targets", at)), text, row=at + 1, given=given))
    return Content(rows=rows, numbers=numbers, names=names, flaws=flaws)


def json_row(at: int, target: dict[str, Any], columns: Sequence[str], flaws: Flaws) -> list[Any]:
    """Return the values of one target, in the order of the columns."""
    for key in getattr(target, "repeated", ()):
        flaws.add(Flaw(json_place(("targets", at, key)), Words("is given more than once"), row=at + 1))
    for key in target:
        if key not in columns and key != ID_TEXT:
            where, text = json_place(("targets", at, key)), Words("is not known here")
            flaws.add(Flaw(where, text, row=at + 1, column=visible(key), given=shortened(single(target[key]))))
    values = [single(target.get(name, MISSING)) for name in columns]
    if ID_TEXT in target and "id" in columns:
        values[columns.index("id")] = id_of(at, target, flaws)
    return values


def id_of(at: int, target: dict[str, Any], flaws: Flaws) -> Any:
    """Return the id of a target that gives it as text, beside the number or instead of it."""
    text, number = target[ID_TEXT], target.get("id", MISSING)
    if not isinstance(text, str) or not PLAIN_INTEGER.fullmatch(text):
        where, given = json_place(("targets", at, ID_TEXT)), shortened(single(text))
        problem = Words("must be the digits of an integer as text, not %(given)s", given=given)
        flaws.add(Flaw(where, problem, row=at + 1, column=ID_TEXT, given=given))
        return single(number)
    if number is not MISSING and (type(number) is not int or number != int(text)):
        where = json_place(("targets", at, ID_TEXT))
        problem = Words("is another id than %(given)s", given=shortened(single(number)))
        flaws.add(Flaw(where, problem, row=at + 1, column=ID_TEXT, given=shortened(text)))
    return int(text)


def single(value: Any) -> Any:
    """Return a JSON value; a list, an object and a text that is too long as they are shown."""
    if isinstance(value, list | dict):
        return Other(shown(value, DEPTH_MAX))
    if isinstance(value, str) and len(value) > CELL_CHARS_MAX:
        return Other(shortened(value))
    return value


def shown(value: Any, depth: int) -> str:
    """Return the beginning of a list or object as text, however deep it is."""
    if not depth:
        return "…"
    if isinstance(value, list):
        return "[" + ", ".join(shown(one, depth - 1) for one in value[:3]) + ("…]" if len(value) > 3 else "]")
    if isinstance(value, dict):
        parts = [f"{shortened(key)}: {shown(one, depth - 1)}" for key, one in list(value.items())[:3]]
        return "{" + ", ".join(parts) + ("…}" if len(value) > 3 else "}")
    return shortened(value)


# How content travels from the child process: JSON in which a list of two names what JSON has no value for.


def encoded_value(value: Any) -> Any:
    """Return a value as it travels."""
    if value is MISSING:
        return ["missing", ""]
    if value is REFUSED:
        return ["refused", ""]
    if isinstance(value, Number | Other):
        return ["number" if isinstance(value, Number) else "other", str(value)]
    return ["date", value.isoformat()] if isinstance(value, datetime) else value


def decoded_value(value: Any) -> Any:
    """Return a value that has travelled."""
    if not isinstance(value, list):
        return value
    name, text = value
    makers: dict[str, Any] = {"number": Number, "other": Other, "date": datetime.fromisoformat}
    markers = {"missing": MISSING, "refused": REFUSED}
    return markers[name] if name in markers else makers[name](text)


def encoded_flaw(flaw: Flaw) -> list[Any]:
    """Return a problem as it travels, with the parts of its sentences."""
    return [encoded_words(flaw.where), encoded_words(flaw.problem), flaw.row, flaw.column, flaw.given]


def decoded_flaw(parts: list[Any]) -> Flaw:
    """Return a problem that has travelled."""
    where, problem, row, column, given = parts
    return Flaw(decoded_words(where), decoded_words(problem), row=row, column=column, given=given)


def encoded_words(text: str) -> list[Any]:
    """Return a sentence as it travels."""
    return [text.text, {name: str(value) for name, value in text.values.items()}] if isinstance(text, Words) else [text]


def decoded_words(parts: list[Any]) -> str:
    """Return a sentence that has travelled."""
    return Words(parts[0], **parts[1]) if len(parts) > 1 else str(parts[0])


def encoded_content(content: Content) -> str:
    """Return content as it travels."""
    return json.dumps(
        {
            "rows": [[encoded_value(value) for value in row] for row in content.rows],
            "numbers": content.numbers,
            "names": {name: encoded_value(value) for name, value in content.names.items()},
            "header": content.header,
            "flaws": [encoded_flaw(flaw) for flaw in content.flaws],
            "hidden": content.hidden,
            "formulas": content.formulas,
        },
        separators=(",", ":"),
    )


def decoded_content(answer: dict[str, Any]) -> Content:
    """Return content that has travelled. Raises: InvalidPlan when it is a refusal."""
    if "refusal" in answer:
        raise InvalidPlan([decoded_flaw(parts) for parts in answer["refusal"]])
    return Content(
        rows=[[decoded_value(value) for value in row] for row in answer["rows"]],
        numbers=answer["numbers"],
        names={name: decoded_value(value) for name, value in answer["names"].items()},
        header=answer["header"],
        flaws=[decoded_flaw(parts) for parts in answer["flaws"]],
        hidden=answer["hidden"],
        formulas=answer["formulas"],
    )
