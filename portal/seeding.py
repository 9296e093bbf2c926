"""
Any amount of sample data, the same each time: orders with lines, advices, comments, and contacts.

Rows are made and written in chunks, so memory stays flat; the same plan on the same rows makes the same rows.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import count, islice, product
from random import Random
from typing import Any, NamedTuple

from django.db import models, router, transaction
from django.db.models import Max

from .models import Advice, AdviceState, Comment, Contact, LineState, Order, OrderLine
from .vocabulary import ITEMS, NOTES, PEOPLE, REASONS, REMARKS

#: Rows per transaction; Django cuts it into statements where a database takes fewer parameters.
CHUNK_ROWS = 5000
#: More of one kind than this is a slip of the finger: it would be hundreds of gigabytes.
ROWS_MAX = 100_000_000
#: How many of the rows that are already there (the newest) new ones are hung on, when none of their own are made.
POOL_ROWS = 10_000
#: Names that are looked up in one statement; below SQL Server's 2,048 for an IN list.
NAMES_ROWS = 1000
TENANT_CHARS_MAX = 64
#: Before it no sample business took place; keeps every date lawful on every database and in every time zone.
EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
LANGUAGES = tuple(PEOPLE)


class SeedRefused(ValueError):
    """The plan cannot be carried out; nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of what; events are spread evenly over the ``days`` before ``until``, in the order of their ids."""

    until: datetime
    days: int = 30
    seed: int = 1
    contacts: int = 30
    orders: int = 0
    lines_per_order: int = 3
    #: Lines among the new ones that the supplier rejected.
    rejected: int = 0
    #: Accepted delivery advices.
    advices: int = 0
    comments: int = 0
    tenants: tuple[str, ...] = ("acme", "globex", "initech")
    #: Whether the new lines have been notified already.
    is_handled: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be, all of it at once. Raises: SeedRefused."""
        if problems := [*self.bad_amounts(), *self.bad_times(), *self.bad_tenants()]:
            raise SeedRefused("; ".join(problems))

    @property
    def lines(self) -> int:
        """How many order lines are made."""
        return self.orders * self.lines_per_order

    @property
    def rows(self) -> int:
        """How many rows are made."""
        return self.contacts + self.orders + self.lines + self.advices + self.comments

    def bad_amounts(self) -> Iterator[str]:
        """Yield what is wrong with the amounts."""
        for name in ("contacts", "orders", "lines_per_order", "rejected", "advices", "comments"):
            if not 0 <= (value := getattr(self, name)) <= ROWS_MAX:
                yield f"{name} must be 0 to {ROWS_MAX}, not {value}"
        if self.lines > ROWS_MAX:
            yield f"orders x lines_per_order must be at most {ROWS_MAX}, not {self.lines}"
        if self.rejected > max(self.lines, 0):
            yield f"rejected must be at most the {self.lines} lines that are made, not {self.rejected}"

    def bad_times(self) -> Iterator[str]:
        """Yield what is wrong with the times."""
        if self.days < 1:
            yield f"days must be 1 or more, not {self.days}"
        elif self.until.tzinfo is None:
            yield f"until must have a time zone, {self.until} has none"
        elif (self.until - EARLIEST).days < self.days:
            yield f"{self.days} days before {self.until:%Y-%m-%d} is before {EARLIEST:%Y-%m-%d}"

    def bad_tenants(self) -> Iterator[str]:
        """Yield what is wrong with the tenants."""
        if not self.tenants:
            yield "tenants must name at least one"
        for tenant in self.tenants:
            if not (0 < len(tenant) <= TENANT_CHARS_MAX and tenant.isprintable() and tenant.strip() == tenant):
                yield f"a tenant has 1 to {TENANT_CHARS_MAX} printable characters, no blank at either end: {tenant!r}"
            elif not unicodedata.is_normalized("NFC", tenant):
                yield f"a tenant is written in Unicode's form NFC: {tenant!r}"

    def moment(self, place: int, of: int) -> datetime:
        """Return the time of the event at ``place`` (from 0) among ``of``; the last one is ``until`` itself."""
        return self.until - timedelta(days=self.days) * ((of - 1 - place) / of)

    def random(self, table: str) -> Random:
        """Return a source of chance for one table, so that more of one does not change the others."""
        return Random(f"{self.seed}/{table}")  # noqa: S311 - sample data


@dataclass(frozen=True)
class Seeded:
    """How many rows were made."""

    contacts: int = 0
    orders: int = 0
    lines: int = 0
    advices: int = 0
    comments: int = 0


class Person(NamedTuple):
    """What the other rows need of a contact."""

    pk: int
    name: str
    language: str


@dataclass
class Ids:
    """The ids of a table's new rows in order, kept as runs: a million consecutive ids are one."""

    firsts: list[int] = field(default_factory=list)
    #: How many ids stand before each run.
    starts: list[int] = field(default_factory=list)
    size: int = 0

    def extend(self, ids: Iterable[int]) -> None:
        """Append ids."""
        for pk in ids:
            if not self.firsts or pk != self.firsts[-1] + self.size - self.starts[-1]:
                self.firsts.append(pk)
                self.starts.append(self.size)
            self.size += 1

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: int) -> int:
        run = bisect_right(self.starts, place) - 1
        return self.firsts[run] + place - self.starts[run]


def seed(plan: Plan, *, using: str | None = None, progress: Callable[[int], object] = lambda rows: None) -> Seeded:
    """
    Make the rows of a plan beside those that are there; advices and comments without new orders go to the newest.

    Transaction: one per chunk of CHUNK_ROWS; what is written stays when a later chunk fails.
    Raises: SeedRefused, before anything is written, when there is nobody or nothing to hang a row on.
    """
    using = using or router.db_for_write(Order)
    refuse_orphans(plan, using=using)

    def write(model: type[models.Model], names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> Ids:
        ids = Ids()
        while chunk := list(islice(rows, CHUNK_ROWS)):
            ids.extend(insert(model, names, chunk, using=using))
            progress(len(chunk))
        return ids

    write(Contact, CONTACT, new_contacts(plan, using=using))
    people = newest_people(using=using)
    orders = write(Order, ORDER, new_orders(plan, people, first=next_number(Order, using=using)))
    lines = write(OrderLine, LINE, new_lines(plan, orders))
    orders, lines = orders or newest(Order, using=using), lines or newest(OrderLine, using=using)
    write(Advice, ADVICE, new_advices(plan, orders, first=next_number(Advice, using=using)))
    write(Comment, COMMENT, new_comments(plan, lines, people))
    return Seeded(**{f.name: getattr(plan, f.name) for f in fields(Seeded)})


def insert(
    model: type[models.Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]], *, using: str
) -> list[int]:
    """Insert rows, whose values stand in the order of ``names``; return their ids in order. Transaction: its own."""
    made = [model(**dict(zip(names, row, strict=True))) for row in rows]
    table = model._default_manager.using(using)
    with transaction.atomic(using=using):
        ids = [row.pk for row in table.bulk_create(made)]
        if None in ids:
            # SQL Server does not return them; whoever fills a database with samples is alone in it.
            ids = sorted(table.order_by("-pk").values_list("pk", flat=True)[: len(made)])
    return ids


def refuse_orphans(plan: Plan, *, using: str | None) -> None:
    """Refuse rows that would hang on nothing. Raises: SeedRefused."""
    wanted = [
        (plan.orders or plan.comments, plan.contacts, Contact, "orders and comments need people: give contacts"),
        (plan.advices, plan.orders, Order, "advices need orders: give orders"),
        (plan.comments, plan.lines, OrderLine, "comments need order lines: give orders and lines_per_order"),
    ]
    for needing, making, model, text in wanted:
        if needing and not making and not model._default_manager.using(using).exists():
            raise SeedRefused(text)


def newest(model: type[models.Model], *, using: str | None) -> Ids:
    """Return the ids of the newest rows of a table, oldest first."""
    ids = Ids()
    ids.extend(sorted(model._default_manager.using(using).order_by("-pk").values_list("pk", flat=True)[:POOL_ROWS]))
    return ids


def newest_people(*, using: str | None) -> list[Person]:
    """Return the newest contacts."""
    rows = Contact.objects.using(using).order_by("-pk").values_list("pk", "name", "language")[:POOL_ROWS]
    return [Person(*row) for row in rows]


def next_number(model: type[models.Model], *, using: str | None) -> int:
    """Return a number to go on counting documents from."""
    return int(model._default_manager.using(using).aggregate(last=Max("pk"))["last"] or 0) + 1


#: The attributes of each table's new rows, in the order in which the functions below yield them.
CONTACT = ("name", "email", "language")
ORDER = ("number", "tenant", "buyer_id", "supplier_id", "note", "registered_at")
LINE = ("order_id", "tenant", "item", "qty", "revision", "state", "handled", "rejected_at", "reason")
ADVICE = ("order_id", "number", "state", "accepted_at")
COMMENT = ("line_id", "author", "recipient_id", "body", "created_at")


def new_contacts(plan: Plan, *, using: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield people with names that nobody has yet, in all languages in turn."""
    candidates = people_of(plan.random("contacts"))
    left = plan.contacts
    while left:
        chunk = list(islice(candidates, NAMES_ROWS))
        names = [name for name, _, _ in chunk]
        taken = set(Contact.objects.using(using).filter(name__in=names).values_list("name", flat=True))
        free = [row for row in chunk if row[0] not in taken][:left]
        left -= len(free)
        yield from free


def people_of(chance: Random) -> Iterator[tuple[str, str, str]]:
    """Yield name, address and language without end; when the names are used up, they come again with a number."""
    pairs = {language: list(product(*names)) for language, names in PEOPLE.items()}
    for each in pairs.values():
        chance.shuffle(each)
    for turn in count(1):
        number = "" if turn == 1 else str(turn)
        for row in zip(*pairs.values(), strict=True):
            for language, ((given, given_mail), (family, family_mail)) in zip(pairs, row, strict=True):
                shown = f"{family} {given}" if language == "ja" else f"{given} {family}"
                address = f"{given_mail}.{family_mail}{number}@{language}.example.org"
                yield f"{shown} {number}".strip(), address, language


def new_orders(plan: Plan, people: Sequence[Person], *, first: int) -> Iterator[tuple[Any, ...]]:
    """Yield registered orders."""
    chance = plan.random("orders")
    for place in range(plan.orders):
        buyer, supplier = chance.choice(people), chance.choice(people)
        registered_at = plan.moment(place, plan.orders)
        number, tenant = f"PO-{registered_at:%Y}-{first + place:06d}", plan.tenants[place % len(plan.tenants)]
        note = chance.choice(words(NOTES, supplier.language))
        yield number, tenant, buyer.pk, supplier.pk, note, registered_at


def new_lines(plan: Plan, orders: Ids) -> Iterator[tuple[Any, ...]]:
    """Yield the lines of the new orders; the rejected ones are spread evenly among them."""
    chance = plan.random("lines")
    for place in range(plan.lines):
        order, language = place // plan.lines_per_order, chance.choice(LANGUAGES)
        tenant = plan.tenants[order % len(plan.tenants)]
        item, qty, revision = chance.choice(ITEMS[language]), chance.randrange(1, 500), chance.randrange(0, 5)
        told: tuple[Any, ...] = (LineState.PENDING.value, plan.is_handled, None, "")
        if (place + 1) * plan.rejected // plan.lines > place * plan.rejected // plan.lines:
            rejected_at, reason = plan.moment(place, plan.lines), chance.choice(REASONS[language])
            told = (LineState.REJECTED.value, plan.is_handled, rejected_at, reason)
        yield orders[order], tenant, item, qty, revision, *told


def new_advices(plan: Plan, orders: Ids, *, first: int) -> Iterator[tuple[Any, ...]]:
    """Yield accepted advices, spread evenly over the orders."""
    for place in range(plan.advices):
        order, accepted_at = orders[place * len(orders) // plan.advices], plan.moment(place, plan.advices)
        yield order, f"DA-{first + place:06d}", AdviceState.ACCEPTED.value, accepted_at


def new_comments(plan: Plan, lines: Ids, people: Sequence[Person]) -> Iterator[tuple[Any, ...]]:
    """Yield comments, spread evenly over the lines: those of one line are a talk that follows on its order."""
    chance = plan.random("comments")
    for place in range(plan.comments):
        author, recipient = chance.choice(people), chance.choice(people)
        line, body = lines[place * len(lines) // plan.comments], chance.choice(words(REMARKS, author.language))
        yield line, author.name, recipient.name, body, plan.moment(place, plan.comments)


def words(of: Mapping[str, Sequence[str]], language: str) -> Sequence[str]:
    """Return the words of a language; English for one that has none."""
    return of.get(language) or of["en"]
