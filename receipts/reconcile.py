"""
Compare receipts with their audit rows, and those with the rows as they are now.

Reads only: it repairs nothing and names no cause. It begins with ``receipts_changes.targets``: what was approved is
compared with what was audited, so that a receipt without its audit rows is ``broken`` and not a match of nothing.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

from django.db import IntegrityError, connections, router, transaction
from django.db.models import TextField
from django.db.models.functions import Cast

from .change_types import ChangeType, each_kind, get_kind
from .field_changes import tenant_value
from .models import Audit, Change, Reconciliation, Verdict
from .plans.canonical import Target, canonical_targets, digest
from .querysets import ChangeQuerySet, Found
from .receipt import PROBLEM_TEXTS, Disagreement, disagreements, readable_targets
from .values import reader

CATEGORIES = ("match", "changed", "missing", "broken")
#: Other receipts named for one row.
REUSED_NAMED = 5


class Row(NamedTuple):
    """What is compared of a row."""

    revision: int
    qty: int | None
    state: str | None


class FieldValues(Row):
    """What is compared of a row of a kind that names its fields: each of them by name."""

    values: dict[str, Any]

    def __new__(cls, values: Mapping[str, Any]) -> "FieldValues":
        made = super().__new__(cls, values.get("revision"), values.get("qty"), values.get("state"))  # type: ignore[arg-type]
        made.values = dict(values)
        return made

    def _asdict(self) -> dict[str, Any]:
        return self.values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldValues) and self.values == other.values

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(self))


class Item(NamedTuple):
    """
    One target: ``match``, ``changed``, ``missing`` or ``broken``.

    ``current`` is None when the row is missing for this tenant, ``recorded`` when there is no audit row. ``also_in``
    names other receipts that audit the same row with the same revision: one of the two was put back by other means.
    """

    id: int
    category: str
    recorded: Row | None
    current: Row | None
    problem: str = ""
    also_in: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that differ."""
        if self.current is None or self.recorded is None:
            return ()
        current = self.current._asdict()
        return tuple(name for name, value in self.recorded._asdict().items() if value != current.get(name))

    def as_json(self) -> dict[str, Any]:
        """Return it as the commands print it."""
        rows = {"recorded": self.recorded, "current": self.current}
        content: dict[str, Any] = {"id": self.id, "category": self.category}
        content |= {name: None if row is None else row._asdict() for name, row in rows.items()}
        if self.problem:
            content["problem"] = self.problem
        if self.also_in:
            content["also_in"] = list(self.also_in)
        return content

    def as_text(self) -> str:
        """Return it for a person; empty when it matches."""
        if self.category == "match":
            return ""
        if self.problem:
            return f"  {self.id}: {self.category}: {PROBLEM_TEXTS[self.problem] % {'id': self.id}}"
        if self.current is None or self.recorded is None:
            return f"  {self.id}: missing"
        recorded, current = self.recorded._asdict(), self.current._asdict()
        differing = [f"{name} {recorded[name]} -> {current.get(name)}" for name in self.fields]
        if self.also_in:
            differing.append(f"its revision was given a second time, by {', '.join(self.also_in)}")
        return f"  {self.id}: changed: {', '.join(differing)}"


def values_of(values: tuple[Any, ...]) -> Row:
    """Return what is compared of a row, from its part of the join."""
    return values[0] if isinstance(values[0], FieldValues) else Row._make(values)


@dataclass(frozen=True)
class Reconciled:
    """One receipt compared with its audit rows and its rows, all as of one moment."""

    change_id: str
    match: int
    changed: int
    missing: int
    broken: int
    #: What the join gave: target_id, recorded revision, qty and state, the row's id or None, the same three of today,
    #: then the revision before, and whether another receipt audits the row with the same revision.
    rows: Sequence[tuple[Any, ...]] = field(repr=False)
    #: How the receipt and its audit rows disagree.
    problems: Sequence[Disagreement] = ()
    #: By target, other receipts that audit it with the same revision.
    reused: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """Every target with its category, in key order; made when asked for, because the counts often say enough."""
        by_id = {one.id: one.problem for one in self.problems if one.id is not None}
        whole = next((one.problem for one in self.problems if one.id is None), "")
        items = [self.item_of(row, by_id.get(row[0], whole)) for row in self.rows]
        absent = [
            Item(pk, "broken", None, None, problem) for pk, problem in by_id.items() if problem == "audit_missing"
        ]
        return tuple(sorted([*items, *absent])) if absent else tuple(items)

    def item_of(self, row: tuple[Any, ...], problem: str) -> Item:
        """Sort one row of the join into its category."""
        recorded, current = values_of(row[1:4]), values_of(row[5:8]) if row[4] is not None else None
        also_in = self.reused.get(row[0], ())
        if problem:
            return Item(row[0], "broken", recorded, current, problem, also_in)
        if current is None:
            return Item(row[0], "missing", recorded, None, "", also_in)
        return Item(
            row[0], "match" if current == recorded and not also_in else "changed", recorded, current, "", also_in
        )

    @property
    def is_match(self) -> bool:
        """Whether receipt and audit agree, and every row is as the receipt says."""
        return not self.changed and not self.missing and not self.broken

    def as_json(self) -> dict[str, Any]:
        """Return it as the commands print it."""
        counts = {name: getattr(self, name) for name in ("change_id", *CATEGORIES)}
        return counts | {
            "problems": [one._asdict() for one in self.problems],
            "items": [item.as_json() for item in self.items],
        }

    def as_lines(self) -> list[str]:
        """Return it for a person: the counts, and what differs."""
        counts = ", ".join(f"{getattr(self, name)} {name}" for name in CATEGORIES if name != "broken" or self.broken)
        whole = [f"  broken: {one}" for one in self.problems if one.id is None]
        return [f"{self.change_id}: {counts}", *whole, *filter(None, (one.as_text() for one in self.items))]


def reconcile(*, change_ids: Iterable[str] | None = None, using: str | None = None) -> Iterator[Reconciled]:
    """
    Compare these receipts, or every one there is, with the rows as they are now; yield one result per receipt.

    Each receipt is compared in one statement, and so in one snapshot, whatever happens to the rows meanwhile. Results
    come one by one; only one receipt's items are in memory at a time.

    Raises: LookupError for a change_id without a receipt, before anything is compared; UnknownKind.
    """
    alias = using or router.db_for_write(Change)
    receipts = Change.objects.using(alias)
    if change_ids is None:
        headers: Iterable[tuple[str, str, str]] = receipts.in_pages()
    else:
        wanted = list(dict.fromkeys(change_ids))
        found = {row[0]: row for row in receipts.filter(pk__in=wanted).values_list("pk", "kind", "tenant")}
        if absent := [change_id for change_id in wanted if change_id not in found]:
            raise LookupError(f"no receipt of {', '.join(map(repr, absent))}")
        headers = [found[change_id] for change_id in wanted]
    return (compare_receipt(change_id, kind, tenant, alias) for change_id, kind, tenant in headers)


def read_headers(*, tenants: Collection[str] | None, using: str) -> Iterator[tuple[str, str, str]]:
    """Yield (change_id, kind, tenant) of every receipt of these tenants, or of all."""
    yield from filter_receipts(tenants, using).in_pages()


def count_receipts(*, tenants: Collection[str] | None = None, using: str | None = None) -> int:
    """Return how many receipts there are, for a progress bar."""
    return filter_receipts(tenants, using or router.db_for_write(Change)).count()


def filter_receipts(tenants: Collection[str] | None, using: str) -> ChangeQuerySet:
    """Return the receipts of these tenants, or all."""
    receipts: ChangeQuerySet = Change.objects.using(using)
    return receipts if tenants is None else receipts.filter(tenant__in=sorted(tenants))


def kinds_of_receipts(*, change_ids: Iterable[str] | None = None, using: str | None = None) -> list[str]:
    """Return the kinds of these receipts, or of all."""
    receipts = Change.objects.using(using or router.db_for_write(Change))
    chosen = receipts if change_ids is None else receipts.filter(pk__in=list(change_ids))
    return sorted(chosen.order_by().values_list("kind", flat=True).distinct())


def compare_receipt(change_id: str, kind: str, tenant: str, alias: str) -> Reconciled:
    """Compare one receipt with its audit rows and with its rows."""
    stored = Change.objects.using(alias).filter(pk=change_id)
    content, stored_digest = stored.values_list(Cast("targets", TextField()), "digest").first() or ("", "")
    rows = read_joined(change_id, kind, tenant, alias)

    def is_genuine(text: str) -> bool:
        return digest(change_id=change_id, kind=kind, tenant=tenant, targets=text) == stored_digest

    problems: list[Disagreement] = []
    # A receipt that agrees with its audit rows is the rule, and is seen in a fraction of the time: its text, without
    # the blanks that the database writes, is the canonical one.
    audited = audited_text(rows)
    if content.replace(", ", ",").replace(": ", ":") != audited or not is_genuine(audited):
        targets = readable_targets(stored.values_list("targets", flat=True).first())
        if targets is None:
            problems.append(Disagreement(None, "targets_unreadable"))
        else:
            if not is_genuine(canonical_targets(targets)):
                problems.append(Disagreement(None, "digest_differs"))
            problems += disagreements(targets, [(row[0], row[8], row[2]) for row in rows])
    reused = {row[0]: find_others(change_id, kind, tenant, row, alias) for row in rows if row[9]}
    return count_categories(change_id, rows, problems, reused)


def audited_text(rows: list[tuple[Any, ...]]) -> str:
    """Return the targets that audit rows are of, in their canonical form; empty where they have no revision and qty."""
    try:
        return canonical_targets(cast(Iterable[Target], [(row[0], row[8], row[2]) for row in rows]))
    except (TypeError, ValueError):  # of a kind that names its fields, or written by plain SQL
        return ""


def count_categories(
    change_id: str,
    rows: list[tuple[Any, ...]],
    problems: list[Disagreement],
    reused: Mapping[int, tuple[str, ...]],
) -> Reconciled:
    """Count the targets of each category."""
    absent = sum(one.problem == "audit_missing" for one in problems)
    if any(one.id is None for one in problems):
        # Nothing that it says of its targets can be relied on.
        counts = {"match": 0, "changed": 0, "missing": 0, "broken": max(1, len(rows) + absent)}
    else:
        broken = {one.id for one in problems}
        whole = [row for row in rows if row[0] not in broken] if broken else rows
        differing = [row for row in whole if row[1:4] != row[5:8] or row[4] is None or row[0] in reused]
        missing = sum(row[4] is None for row in differing)
        counts = {
            "match": len(whole) - len(differing),
            "changed": len(differing) - missing,
            "missing": missing,
            "broken": len(broken),
        }
    return Reconciled(change_id, **counts, rows=rows, problems=problems, reused=reused)


def kinds_on(kind: str) -> list[str]:
    """Return the kinds of change whose rows stand in the same table as those of this kind."""
    table = get_kind(kind).model._meta.db_table
    return [one.name for one in each_kind() if one.model._meta.db_table == table]


def find_others(change_id: str, kind: str, tenant: str, row: tuple[Any, ...], alias: str) -> tuple[str, ...]:
    """Return the tenant's other receipts that audit a row with the same revision."""
    others = Audit.objects.using(alias).filter(change__kind__in=kinds_on(kind), change__tenant=tenant)
    same = others.filter(target_id=row[0], revision_after=row[1]).exclude(change_id=change_id).order_by("change_id")
    return tuple(same.values_list("change_id", flat=True)[:REUSED_NAMED])


def read_joined(change_id: str, kind: str, tenant: str, alias: str) -> list[tuple[Any, ...]]:
    """
    Read audit rows and present rows in one statement, by id and never by count.

    A revision only grows: another receipt that left a row with the same one proves that it was put back in between.
    """
    connection = connections[alias]
    if not get_kind(kind).is_plain:
        return read_field_rows(change_id, get_kind(kind), tenant, alias)
    shape, kinds = get_kind(kind).shape(connection), kinds_on(kind)
    sql = f"""
        SELECT a.target_id, a.revision_after, a.qty, a.state_after, t.{shape.id}, t.{shape.revision}, t.{shape.qty},
            t.{shape.state}, a.revision_before,
            CASE WHEN EXISTS (
                SELECT 1 FROM receipts_audit o JOIN receipts_changes c ON c.change_id = o.change_id
                WHERE o.target_id = a.target_id AND o.revision_after = a.revision_after
                    AND o.change_id <> a.change_id AND c.tenant = %s AND c.kind IN ({", ".join(["%s"] * len(kinds))})
            ) THEN 1 ELSE 0 END
        FROM receipts_audit a LEFT JOIN {shape.source} t ON t.{shape.id} = a.target_id AND t.{shape.tenant} = %s
        WHERE a.change_id = %s ORDER BY a.target_id"""  # noqa: S608 - names come from model fields and are quoted
    with connection.cursor() as cursor:
        cursor.execute(sql, [tenant, *kinds, tenant, change_id])
        return cast(list[tuple[Any, ...]], cursor.fetchall())


def read_field_rows(change_id: str, kind: ChangeType, tenant: str, alias: str) -> list[tuple[Any, ...]]:
    """Read audit rows and present rows of a kind that names its fields, in one statement."""
    connection = connections[alias]
    shape = kind.field_shape(connection)
    belongs = f" AND t.{shape.tenant} = %s" if shape.tenant else ""
    sql = f"""
        SELECT a.target_id, a.fields, a.revision_before, a.qty, {shape.row_columns("t")}
        FROM receipts_audit a LEFT JOIN {shape.source} t ON t.{shape.id} = a.target_id{belongs}
        WHERE a.change_id = %s ORDER BY a.target_id"""  # noqa: S608 - names come from model fields and are quoted
    with connection.cursor() as cursor:
        cursor.execute(sql, [*([tenant_value(kind, tenant)] if shape.tenant else []), change_id])
        found = cursor.fetchall()
    readers = [(name, reader(kind.field(name), connection)) for name in kind.recorded]
    rows = []
    for pk, fields, revision_before, qty, row_id, *columns in found:
        audited = json.loads(fields) if isinstance(fields, str) else fields or {}
        recorded = FieldValues({name: one["after"] for name, one in audited.items()})
        current = None
        if row_id is not None:
            now = {name: read(raw) for (name, read), raw in zip(readers, columns, strict=True)}
            # A kind that has been given more fields since is compared in those that the receipt has.
            current = FieldValues({name: now[name] for name in recorded.values if name in now})
        rows.append((pk, recorded, qty, None, row_id, current, qty, None, revision_before, 0))
    return rows


def record_reconciliation(result: Reconciled, *, actor: str, using: str | None = None) -> Reconciliation:
    """
    Keep a result, so that drift has a history; of the items those that differ. It is the receipt's verdict then.

    Transaction: its own, or a savepoint in the caller's.
    """
    alias = using or router.db_for_write(Reconciliation)
    with transaction.atomic(using=alias):
        receipts = Change.objects.using(alias)
        kind, tenant, created_at = receipts.values_list("kind", "tenant", "created_at").get(pk=result.change_id)
        kept = Reconciliation.objects.using(alias).create(
            change_id=result.change_id,
            tenant=tenant,
            actor=actor,
            match=result.match,
            changed=result.changed,
            missing=result.missing,
            broken=result.broken,
            items=[item.as_json() for item in result.items if item.category != "match"],
        )
        if not try_renew(kept, alias):
            first = {"kind": kind, "tenant": tenant, "created_at": created_at, "reconciliation": kept}
            try:
                with transaction.atomic(using=alias):
                    Verdict.objects.using(alias).create(change_id=result.change_id, found=conclude(kept), **first)
            except IntegrityError:
                # Somebody else wrote the first one; if his is the later result, his stays.
                try_renew(kept, alias)
    return kept


def try_renew(kept: Reconciliation, using: str) -> bool:
    """Make a result the verdict unless a later one is it already; return whether it is."""
    older = Verdict.objects.using(using).filter(pk=kept.change_id, reconciliation__lt=kept.pk)
    return older.update(reconciliation=kept, found=conclude(kept)) == 1


def conclude(kept: Reconciliation) -> Found:
    """Return what a reconciliation says as a whole."""
    if kept.broken:
        return Found.BROKEN
    return Found.DIFFERS if kept.changed or kept.missing else Found.MATCH
