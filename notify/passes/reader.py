"""Candidates, read so that a row which cannot be read costs itself only."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple, cast

from django.db.models import QuerySet

from ..dialects.base import NotifyDialect
from ..steps import Event

#: Candidates per statement once one of them could not be read; few, because their length is unknown.
CAREFUL_ROWS = 50


class Unreadable(NamedTuple):
    """One candidate of which nothing but its key can be read."""

    key: int
    key2: int
    error: str


Part = tuple[list[tuple[Any, ...]], list[Unreadable]]


def read(found: QuerySet[Any, Any], *, names: Sequence[str], rows: int, dialect: NotifyDialect) -> Iterator[Part]:
    """Run the candidate query once and yield its rows in lists; find those that cannot be read one by one."""
    stream = dialect.stream(found, names=names, rows=rows)
    # Closed at once, also after an error: left to the garbage collector it would end in the middle of another step.
    with closing(cast(Generator[list[tuple[Any, ...]]], stream)) as chunks:
        while True:
            try:
                chunk = next(chunks, None)
            except Exception:  # a text that is no UTF-8, a time after the year 9999, what a field of the site's raises
                break
            if chunk is None:
                return
            yield chunk, []
    # Where even finding nothing fails, the query is at fault (a column that is not there yet) and no row of it.
    list(unlimited(found).filter(key__isnull=True).values_list(*names))
    # Written events are no longer candidates, so a restart continues where the error was.
    for pairs in dialect.stream(found, names=["key", "key2"], rows=CAREFUL_ROWS):
        yield from read_pairs(found, names, cast(list[tuple[int, int]], pairs))


def unlimited(found: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """Return a query without its limits."""
    whole = found.all()
    whole.query.clear_limits()
    return whole


def as_events(
    rows: Sequence[Sequence[Any]], names: Sequence[str], as_event: Callable[[Sequence[Any]], Event]
) -> tuple[list[Event], list[Unreadable]]:
    """Return the events of rows, and the rows of which none can be made."""
    # What raises is a language that cannot be turned into a text, for example: then look which one it is.
    with suppress(Exception):
        return [as_event(row) for row in rows], []
    places, events, faulty = (names.index("key"), names.index("key2")), [], []
    for row in rows:
        try:
            events.append(as_event(row))
        except Exception as error:
            faulty.append(Unreadable(row[places[0]], row[places[1]], f"{type(error).__name__}: {error}"))
    return events, faulty


def read_pairs(found: QuerySet[Any, Any], names: Sequence[str], pairs: list[tuple[int, int]]) -> Iterator[Part]:
    """Read these candidates, by halves when one of them cannot be read."""
    whole = unlimited(found)
    places, wanted = (names.index("key"), names.index("key2")), set(pairs)
    try:
        rows = list(whole.filter(key__in=[key for key, _ in pairs]).values_list(*names))
    except Exception as error:  # as in ``read``
        if len(pairs) == 1:
            yield [], [Unreadable(*pairs[0], f"{type(error).__name__}: {error}")]
            return
        middle = len(pairs) // 2
        yield from read_pairs(found, names, pairs[:middle])
        yield from read_pairs(found, names, pairs[middle:])
        return
    yield [row for row in rows if (row[places[0]], row[places[1]]) in wanted], []
