"""The key of an event as people write it in a filter: a whole number, or what the kind's keys are made of."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import router
from django.db.models import Q
from django.utils.translation import gettext as _

from kwit.admin.filters import INTEGER_TEXT, Filter, Rows, parse_integer

from ..errors import WrongKey
from ..models import Control
from ..steps import steps_with_keys


@dataclass(frozen=True)
class AskedKey:
    """The keys that a text may mean: by kind where only some kinds have such keys, else one for every kind."""

    number: int | None = None
    pairs: tuple[tuple[str, int, int], ...] = ()

    def of_kind(self, kind: str) -> tuple[int, int | None]:
        """Return key and key2 of a kind; key2 is None when it is open."""
        return next(((key, key2) for found, key, key2 in self.pairs if found == kind), (self.number or 0, None))


@dataclass(frozen=True)
class KeyFilter(Filter):
    """The key of an event, of one kind or of any."""

    kind: str = ""

    def parse(self, text: str) -> AskedKey:
        """Return what the text may mean. Raises: ValueError with a sentence for people."""
        using = router.db_for_read(Control)
        steps = [step for step in steps_with_keys(using=using) if self.kind in ("", step.kind)]
        if not steps:
            return AskedKey(parse_integer(text))
        pairs = []
        for step in steps:
            with suppress(WrongKey):
                key, key2 = step.get_key(text, using=using)
                pairs.append((step.kind, key, key2 or 0))
        number = parse_integer(text) if INTEGER_TEXT.fullmatch(text) else None
        if number is None and not pairs:
            raise ValueError(_("“%s” is not the key of an event.") % text[:40])
        return AskedKey(number, tuple(pairs))


def of_key(rows: Rows, asked: AskedKey) -> Rows:
    """Return the rows of an asked key."""
    wanted = Q() if asked.number is None else Q(key=asked.number)
    for kind, key, key2 in asked.pairs:
        wanted |= Q(kind=kind, key=key, key2=key2)
    return rows.filter(wanted)


def key_shown(row: Any) -> Any:
    """Return what people call an event's key."""
    return row.original_key or row.key
