"""Take over the keys of another control table, so that nothing is notified twice at a change-over."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.apps.registry import Apps
from django.db import DatabaseError, connections, models, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from ..dialects import dialect_of
from ..dialects.base import ControlRow
from ..errors import NotAdopted
from ..models import Control
from ..notes import english
from ..steps import registered
from .lock import PassLock, holders_of

#: Rows read and written at a time.
CHUNK_ROWS = 2000
#: How many faults are named before they are only counted.
NAMED_MAX = 20
KEY_MIN, KEY_MAX = -(2**63), 2**63 - 1


class GivenKey(models.BigIntegerField):  # type: ignore[type-arg]  # no arguments when it runs
    """A key as another table has it: in a temporary table it must not become an integer before it was looked at."""

    def cast_db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Return a type in which 1.5 and 2 to the power of 63 stay what they are."""
        return "numeric(38, 10)"


@dataclass(frozen=True, kw_only=True)
class Source:
    """
    Where the keys stand: a table (or ``schema.table``), and the columns by name.

    Its kinds come from a column, or are all ``kind``; ``kinds`` translates what the column says into kinds of steps.
    Without a second column key2 is 0, and so it is where that column is NULL.
    """

    table: str
    key_column: str = "key"
    key2_column: str | None = None
    kind_column: str | None = None
    kind: str | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)

    def rows(self, connection: BaseDatabaseWrapper) -> QuerySet[Any, Any]:
        """Return (kind, key, key2) of every row, in the order of the keys."""
        constant = models.Value(self.kind or "", models.CharField())
        zero = models.Value(0, models.BigIntegerField())
        found = self.model(connection)._base_manager.using(connection.alias)
        if not self.key2_column:
            found = found.annotate(key2=zero)
        if not self.kind_column:
            found = found.annotate(kind=constant)
        return found.order_by("key", "key2").values("kind", "key", "key2")

    def model(self, connection: BaseDatabaseWrapper) -> type[models.Model]:
        """Return a model of the table that no registry knows."""
        quote = connection.ops.quote_name
        columns: dict[str, Any] = {"key": GivenKey(primary_key=True, db_column=self.key_column)}
        if self.key2_column:
            columns["key2"] = GivenKey(null=True, db_column=self.key2_column)
        if self.kind_column:
            columns["kind"] = models.CharField(max_length=255, null=True, db_column=self.kind_column)
        meta = {
            "apps": Apps(),
            "app_label": "notify",
            "managed": False,
            "db_table": ".".join(map(quote, self.table.split("."))),
        }
        return type("Adopted", (models.Model,), {"__module__": __name__, "Meta": type("Meta", (), meta), **columns})


@dataclass
class Adoption:
    """The result: rows read, copied (by kind), and already known or duplicate."""

    rows: int = 0
    known: int = 0
    adopted: dict[str, int] = field(default_factory=dict)
    faults: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, problem: str) -> None:
        """Count a fault; name the first few."""
        self.faults += 1
        if len(self.problems) < NAMED_MAX:
            self.problems.append(problem)


def adopt(source: Source, *, is_dry_run: bool = False, using: str | None = None) -> Adoption:
    """
    Write a control row for each key of the source that has none yet; all of them or, when one is faulty, none.

    May be repeated: what is there already stays as it is.

    Transaction: its own, durable, one for all; under the pass lock, so that no pass sends meanwhile.
    Raises: NotAdopted when the table cannot be read, a row is faulty, or a pass is running.
    """
    using = using or router.db_for_write(Control)
    lock = PassLock(using=using)
    answer = lock.acquire(wait_s=0, is_stopping=lambda: False)
    if not answer.is_granted:
        raise NotAdopted(f"a pass is running: {english(holders_of(answer, using=using))}")
    adoption = Adoption()
    try:
        with transaction.atomic(using=using, durable=True):
            for kind, rows in chunks(source, adoption, connections[using]):
                write(kind, rows, adoption, connections[using])
            if adoption.faults:
                raise NotAdopted(
                    f"{adoption.faults} of {adoption.rows} rows are faulty; nothing was taken over", adoption
                )
            transaction.set_rollback(is_dry_run, using=using)
    except DatabaseError as error:
        raise NotAdopted(f"{source.table} cannot be taken over: {error}") from error
    finally:
        lock.release()
    return adoption


def chunks(
    source: Source, adoption: Adoption, connection: BaseDatabaseWrapper
) -> Iterator[tuple[str, Sequence[ControlRow]]]:
    """Yield the rows kind by kind and chunk by chunk; note the faulty ones."""
    known_kinds = {step.kind for step in registered()}
    for rows in dialect_of(connection).stream(source.rows(connection), names=["kind", "key", "key2"], rows=CHUNK_ROWS):
        by_kind: dict[str, list[ControlRow]] = {}
        for told, key, key2 in rows:
            adoption.rows += 1
            kind = kind_of(told, source)
            numbers = as_key(key), as_key(0 if key2 is None else key2)
            if kind not in known_kinds:
                adoption.note(f"{told!r} {key!r} {key2!r}: no step of kind {kind!r}")
            elif None in numbers:
                adoption.note(f"{told!r} {key!r} {key2!r}: keys are 64-bit integers")
            else:
                by_kind.setdefault(kind, []).append(ControlRow(numbers[0] or 0, numbers[1] or 0, "", ""))
        yield from by_kind.items()


def kind_of(told: str | None, source: Source) -> str:
    """Return the kind of step that a value of the kind column stands for; CHAR(n) columns pad it with blanks."""
    plain = (told or "").rstrip(" ")
    return source.kinds.get(plain, plain)


def as_key(value: Any) -> int | None:
    """Return a key as an integer, None when it is none; DECIMAL(19, 0) columns hold integers, too."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    is_key = isinstance(value, int) and not isinstance(value, bool) and KEY_MIN <= value <= KEY_MAX
    return value if is_key else None


def write(kind: str, rows: Sequence[ControlRow], adoption: Adoption, connection: BaseDatabaseWrapper) -> None:
    """Insert those that are not there yet, and count."""
    if adoption.faults:
        return  # nothing will stay, but the rest is still looked through
    made = dialect_of(connection).insert_controls(connection, kind, list(dict.fromkeys(rows)))
    adoption.adopted[kind] = adoption.adopted.get(kind, 0) + len(made)
    adoption.known += len(rows) - len(made)
