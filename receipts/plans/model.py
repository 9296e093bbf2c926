"""
A plan: which rows are to be changed, as they were approved. Reads JSON, CSV and XLSX; pure, no ORM, no SQL.

Every flaw is found in one go and reported with its place. Types are strict, because a lenient reading is another row:
SQLite takes ``true``, ``1.0``, ``"01"`` and ``" 1"`` all for row 1.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ..errors import Flaw, InvalidPlan, Words
from .canonical import Target, canonical_targets, digest
from .sheets import csv_rows, decoded, xlsx_rows

ID_MAX = 2**63 - 1
#: One below the largest 32-bit integer, so that revision + 1 always fits.
REVISION_MAX = 2**31 - 2
QTY_MAX = 2**31 - 1
#: Characters. An index key on every database, and something that a person can still read out on the phone.
CHANGE_ID_CHARS_MAX = 64
TENANT_CHARS_MAX = 64
ACTOR_CHARS_MAX = 150
REASON_CHARS_MAX = 2_000
#: Bytes of a plan file. Ten thousand targets need less than one megabyte in any of the formats.
PLAN_BYTES_MAX = 16 * 2**20

COLUMNS = ("id", "revision", "qty")


def checked_key(text: str) -> str:
    """Return text that is fit to be a key: the same on every database, and visible as it is."""
    if text != text.strip():
        raise ValueError(Words("has a blank at an end"))
    if not text.isprintable():
        raise ValueError(Words("has a character that is not printable"))
    if not unicodedata.is_normalized("NFC", text):
        raise ValueError(Words("is not in Unicode normal form C (NFC)"))
    return text


def checked_note(text: str) -> str:
    """Return text that every database can store."""
    if re.search("[\x00\ud800-\udfff]", text):
        raise ValueError(Words("has a character that cannot be stored"))
    return text


Key = Annotated[str, Field(min_length=1), AfterValidator(checked_key)]
Note = Annotated[str, AfterValidator(checked_note)]


class TargetShape(BaseModel):
    """What one target must look like."""

    model_config = ConfigDict(strict=True, extra="forbid")
    id: Annotated[int, Field(ge=1, le=ID_MAX)]
    revision: Annotated[int, Field(ge=0, le=REVISION_MAX)]
    qty: Annotated[int, Field(ge=0, le=QTY_MAX)]


class PlanShape(BaseModel):
    """What a plan must look like, whatever it was read from."""

    model_config = ConfigDict(strict=True, extra="forbid")
    change_id: Annotated[Key, Field(max_length=CHANGE_ID_CHARS_MAX)]
    tenant: Annotated[Key, Field(max_length=TENANT_CHARS_MAX)]
    targets: list[TargetShape]


class OriginShape(BaseModel):
    """Who wants a change, and why."""

    model_config = ConfigDict(strict=True)
    actor: Annotated[Note, Field(max_length=ACTOR_CHARS_MAX)]
    reason: Annotated[Note, Field(max_length=REASON_CHARS_MAX)]


@dataclass(frozen=True)
class Plan:
    """A plan without flaws, its targets sorted by id."""

    change_id: str
    tenant: str
    targets: tuple[Target, ...]

    @cached_property
    def canonical(self) -> str:
        """The targets in their canonical form."""
        return canonical_targets(self.targets)

    def digest(self, *, kind: str) -> str:
        """Return what identifies this plan as a change of that kind."""
        return digest(change_id=self.change_id, kind=kind, tenant=self.tenant, targets=self.canonical)


@dataclass(frozen=True)
class Draft:
    """What a reader found: plain values, how to name a place in them, and what could not even be read."""

    content: dict[str, Any]
    name_place: Callable[[Sequence[int | str]], str]
    flaws: tuple[Flaw, ...] = ()
    #: The numbers of the targets' rows; without, their positions from 1.
    numbers: Sequence[int] = ()

    def flaw(self, loc: Sequence[int | str], problem: str, given: str = "") -> Flaw:
        """Return a flaw at a place in the content."""
        row, column = None, str(loc[0]) if len(loc) == 1 else ""
        if len(loc) > 1 and loc[0] == "targets" and isinstance(loc[1], int):
            row = self.numbers[loc[1]] if self.numbers else loc[1] + 1
            column = str(loc[2]) if len(loc) > 2 else ""
        return Flaw(self.name_place(loc), problem, row=row, column=column, given=given)


def checked_plan(*, change_id: str, tenant: str, targets: Iterable[Target], targets_max: int) -> Plan:
    """
    Return the plan that these arguments make.

    Raises: InvalidPlan.
    """
    rows = [target._asdict() if isinstance(target, Target) else target for target in targets]
    content = {"change_id": change_id, "tenant": tenant, "targets": rows}
    return checked(Draft(content, json_place), targets_max=targets_max)


def check_origin(*, actor: str, reason: str) -> None:
    """
    Refuse an actor or a reason that the receipt could not keep.

    Raises: InvalidPlan.
    """
    try:
        OriginShape(actor=actor, reason=reason)
    except ValidationError as error:
        raise InvalidPlan([Flaw(json_place(one["loc"]), wording(one)) for one in error.errors()]) from error


def check_author(author: str) -> None:
    """Refuse a plan that nobody has written. Raises: InvalidPlan."""
    if not author.strip():
        raise InvalidPlan([Flaw("author", Words("is empty: four eyes need to know whose the first two are"))])


def read_plan(
    data: bytes, *, name: str, targets_max: int, change_id: str | None = None, tenant: str | None = None
) -> Plan:
    """
    Read a plan file; its name tells the format, ``-`` being JSON.

    JSON brings change_id and tenant along; for CSV and XLSX they are arguments.

    Raises: InvalidPlan.
    """
    suffix = ".json" if name == "-" else PurePath(name).suffix.lower()
    if suffix not in (".json", ".csv", ".xlsx"):
        raise InvalidPlan([Flaw(name, Words("is neither a .json nor a .csv nor an .xlsx file"))])
    if len(data) > PLAN_BYTES_MAX:
        raise InvalidPlan([Flaw(name, Words("has more than %(limit)s bytes", limit=format(PLAN_BYTES_MAX, ",")))])
    beside = {key: value for key, value in (("change_id", change_id), ("tenant", tenant)) if value is not None}
    if suffix == ".json":
        return checked(read_json(data, beside), targets_max=targets_max)
    table = csv_rows(data) if suffix == ".csv" else xlsx_rows(data)
    return checked(read_table(table, beside), targets_max=targets_max)


def checked(draft: Draft, *, targets_max: int) -> Plan:
    """Return the plan in a draft, or raise InvalidPlan with all of its flaws."""
    flaws = list(draft.flaws)
    rows = draft.content.get("targets")
    if isinstance(rows, list) and len(rows) > targets_max:
        # Not looked into any further: millions of flaws would need gigabytes.
        raise InvalidPlan([*flaws, count_flaw(rows, targets_max)])
    try:
        shape = PlanShape.model_validate(draft.content)
    except ValidationError as error:
        flaws += [draft.flaw(one["loc"], wording(one), given(one)) for one in error.errors(include_url=False)]
    if isinstance(rows, list):
        flaws += repeated_targets(rows, draft)
        if not rows:
            flaws.append(count_flaw(rows, targets_max))
    if flaws:
        raise InvalidPlan(flaws)
    targets = sorted(Target(row.id, row.revision, row.qty) for row in shape.targets)
    return Plan(change_id=shape.change_id, tenant=shape.tenant, targets=tuple(targets))


def count_flaw(rows: list[Any], targets_max: int) -> Flaw:
    """Say that a plan has too few or too many targets."""
    text = Words(
        "has %(count)s targets; a change has from 1 to %(limit)s",
        count=format(len(rows), ","),
        limit=format(targets_max, ","),
    )
    return Flaw("targets", text)


def repeated_targets(rows: list[Any], draft: Draft) -> list[Flaw]:
    """Find ids that stand in a plan more than once."""
    ids = [row["id"] for row in rows if isinstance(row, dict) and type(row.get("id")) is int]
    repeated = {number for number, times in Counter(ids).items() if times > 1}
    if not repeated:
        return []
    return [
        draft.flaw(
            ("targets", at, "id"), Words("id %(id)s stands in the plan more than once", id=row["id"]), repr(row["id"])
        )
        for at, row in enumerate(rows)
        if isinstance(row, dict) and type(row.get("id")) is int and row["id"] in repeated
    ]


def given(error: Any) -> str:
    """Return the value that pydantic did not like, shortened; nothing when there is none."""
    if error["type"] == "missing":
        return ""
    return shortened(error["input"])


def shortened(value: Any) -> str:
    """Return a value as it was given, in a line."""
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:39] + "…"


def wording(error: Any) -> str:
    """Say in plain words what pydantic found."""
    shown = given(error)
    match error["type"]:
        case "int_type" | "int_parsing_size":
            return Words("must be an integer, not %(given)s", given=shown)
        case "string_type":
            return Words("must be text, not %(given)s", given=shown)
        case "missing":
            return Words("is missing")
        case "extra_forbidden":
            return Words("is not known here")
        case "value_error":
            return said_by(error["ctx"]["error"])
        case "greater_than_equal":
            return Words("must be %(limit)s or more, not %(given)s", limit=error["ctx"]["ge"], given=shown)
        case "less_than_equal":
            return Words("must be %(limit)s or less, not %(given)s", limit=error["ctx"]["le"], given=shown)
        case "string_too_short":
            return Words("is empty")
        case "string_too_long" | "too_long":
            return Words("is longer than %(limit)s characters", limit=error["ctx"]["max_length"])
        case "string_unicode":
            return Words("has a character that cannot be stored")
        case "model_type":
            return Words("must be an object, not %(given)s", given=shown)
        case "list_type":
            return Words("must be a list, not %(given)s", given=shown)
    return str(error["msg"])


def said_by(error: ValueError) -> str:
    """Return what a check of ours has said, which ``str`` would make plain text."""
    said: str = error.args[0]
    return said


class Repeats(dict[str, Any]):
    """A JSON object in which a key was given twice: the standard parser would keep the last and say nothing."""

    repeated: tuple[str, ...] = ()


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object, remembering keys that came more than once."""
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
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else step
    return place or Words("the plan")


def refuse_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not JSON")


def read_json(data: bytes, beside: dict[str, str]) -> Draft:
    """Read a JSON object; what the command line says too must say the same."""
    try:
        content = json.loads(decoded(data), object_pairs_hook=json_object, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidPlan([Flaw(Words("the file"), Words("is not JSON: %(error)s", error=error))]) from error
    if not isinstance(content, dict):
        raise InvalidPlan([Flaw(Words("the plan"), Words("must be an object with change_id, tenant and targets"))])
    flaws = [
        Flaw(
            key,
            Words("is %(found)s in the file, but %(asked)s was asked for", found=repr(content[key]), asked=repr(value)),
        )
        for key, value in beside.items()
        if key in content and content[key] != value
    ]
    flaws += repeated_keys(content, ())
    return Draft({**beside, **content}, json_place, tuple(flaws))


def repeated_keys(value: Any, loc: tuple[int | str, ...]) -> list[Flaw]:
    """Find keys given twice, in the plan and in each target."""
    flaws = []
    if isinstance(value, Repeats):
        flaws += [Flaw(json_place((*loc, key)), Words("is given more than once")) for key in value.repeated]
    if isinstance(value, dict):
        for key, below in value.items():
            flaws += repeated_keys(below, (*loc, key))
    elif isinstance(value, list):
        for at, below in enumerate(value):
            if isinstance(below, dict):
                flaws += repeated_keys(below, (*loc, at))
    return flaws


def read_table(rows: list[tuple[int, list[Any]]], beside: dict[str, str]) -> Draft:
    """Turn numbered rows, the first being the header, into a plan's content."""
    if not rows:
        text = Words("is empty; it needs a first row with id, revision and qty")
        raise InvalidPlan([Flaw(Words("the file"), text)])
    header_row, header = rows[0]
    flaws = [
        Flaw(
            f"row {header_row}, column {at}",
            Words("%(name)s is not one of the columns id, revision, qty", name=shortened(name)),
            row=header_row,
            column=str(at),
            given=shortened(name),
        )
        for at, name in enumerate(header, 1)
        if name not in COLUMNS
    ]
    flaws += [
        Flaw(f"row {header_row}", Words("column %(name)s is missing", name=name), row=header_row, column=name)
        for name in COLUMNS
        if name not in header
    ]
    flaws += [
        Flaw(f"row {header_row}", Words("column %(name)s is there twice", name=name), row=header_row, column=name)
        for name in COLUMNS
        if header.count(name) > 1
    ]
    if flaws:
        raise InvalidPlan(flaws)
    body = rows[1:]
    flaws = [
        Flaw(
            f"row {number}",
            Words("has %(count)s cells instead of %(wanted)s", count=len(cells), wanted=len(header)),
            row=number,
        )
        for number, cells in body
        if len(cells) != len(header)
    ]
    targets = [dict(zip(header, cells, strict=False)) for _, cells in body]

    def name_place(loc: Sequence[int | str]) -> str:
        if len(loc) < 3:
            option = {"change_id": "--change-id", "tenant": "--tenant"}
            return option.get(str(loc[0]), str(loc[0])) if len(loc) == 1 else f"row {body[int(loc[1])][0]}"
        return f"row {body[int(loc[1])][0]}, column {header.index(loc[2]) + 1} ({loc[2]})"

    numbers = [number for number, _ in body]
    return Draft({**beside, "targets": targets}, name_place, tuple(flaws), numbers)
