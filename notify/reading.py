"""Candidates, read so that a row which cannot be read costs itself only."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple, cast

from django.db import DatabaseError
from django.db.models import QuerySet

from .backends.base import Room

#: What reading a row may raise when the row itself is at fault: a text that is no UTF-8, a time after the year 9999.
UNREADABLE = (DatabaseError, ValueError, TypeError, OverflowError)
#: Candidates per statement once one of them could not be read; few, because nobody knows how long they are.
CAREFUL_ROWS = 50


class Unreadable(NamedTuple):
    """One candidate of which nothing but its key can be read."""

    key: int
    key2: int
    error: str


Part = tuple[list[tuple[Any, ...]], list[Unreadable]]


def read(found: QuerySet[Any, Any], *, names: Sequence[str], rows: int, room: Room) -> Iterator[Part]:
    """Run the candidate query once and yield its rows in lists; find those that cannot be read one by one."""
    stream = room.stream(found, names=names, rows=rows)
    # Closed at once, also after an error: left to the garbage collector it would end in the middle of another step.
    with closing(cast(Generator[list[tuple[Any, ...]]], stream)) as chunks:
        while True:
            try:
                chunk = next(chunks, None)
            except UNREADABLE:
                break
            if chunk is None:
                return
            yield chunk, []
    # What has been written is no candidate any more, so beginning anew goes on where the error was.
    for pairs in room.stream(found, names=["key", "key2"], rows=CAREFUL_ROWS):
        yield from read_pairs(found, names, cast(list[tuple[int, int]], pairs))


def read_pairs(found: QuerySet[Any, Any], names: Sequence[str], pairs: list[tuple[int, int]]) -> Iterator[Part]:
    """Read these candidates, by halves when one of them cannot be read."""
    whole = found.all()
    whole.query.clear_limits()
    places, wanted = (names.index("key"), names.index("key2")), set(pairs)
    try:
        rows = list(whole.filter(key__in=[key for key, _ in pairs]).values_list(*names))
    except UNREADABLE as error:
        if len(pairs) == 1:
            yield [], [Unreadable(*pairs[0], f"{type(error).__name__}: {error}")]
            return
        middle = len(pairs) // 2
        yield from read_pairs(found, names, pairs[:middle])
        yield from read_pairs(found, names, pairs[middle:])
        return
    yield [row for row in rows if (row[places[0]], row[places[1]]) in wanted], []
