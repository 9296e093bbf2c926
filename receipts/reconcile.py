"""Compare receipts with the rows as they are now. Reads only: it repairs nothing and names no cause."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple, cast

from django.db import IntegrityError, connections, router, transaction

from .change_types import get_kind
from .models import Audit, Change, Reconciliation, Verdict
from .plans.canonical import Target, canonical_targets, digest, stored_targets
from .querysets import ChangeQuerySet, Found


class Row(NamedTuple):
    """What is compared of a row."""

    revision: int
    qty: int | None
    state: str | None


class Item(NamedTuple):
    """One target: ``match``, ``changed`` or ``missing``; ``current`` is None when it is missing for this tenant."""

    id: int
    category: str
    recorded: Row
    current: Row | None

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that differ."""
        if self.current is None:
            return ()
        pairs = zip(Row._fields, self.recorded, self.current, strict=True)
        return tuple(name for name, recorded, current in pairs if recorded != current)

    def as_json(self) -> dict[str, Any]:
        """Return it as the commands print it."""
        current = self.current._asdict() if self.current is not None else None
        return {"id": self.id, "category": self.category, "recorded": self.recorded._asdict(), "current": current}


def item_of(row: tuple[Any, ...]) -> Item:
    """Sort one row of the join into its category."""
    recorded = Row._make(row[1:4])
    if row[4] is None:
        return Item(row[0], "missing", recorded, None)
    current = Row._make(row[5:])
    return Item(row[0], "match" if current == recorded else "changed", recorded, current)


@dataclass(frozen=True)
class Reconciled:
    """One receipt compared with its rows, all as of one moment."""

    change_id: str
    match: int
    changed: int
    missing: int
    #: What the join gave: target_id, recorded revision, qty and state, the row's id or None, the same three of today.
    rows: Sequence[tuple[Any, ...]] = field(repr=False)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """Every target with its category, in key order; made when asked for, because the counts often say enough."""
        return tuple(item_of(row) for row in self.rows)

    @property
    def is_match(self) -> bool:
        """Whether every row is as the receipt says."""
        return not self.changed and not self.missing

    def as_json(self) -> dict[str, Any]:
        """Return it as the commands print it."""
        counts = {name: getattr(self, name) for name in ("change_id", "match", "changed", "missing")}
        return counts | {"items": [item.as_json() for item in self.items]}

    def as_lines(self) -> list[str]:
        """Return it for a person: the counts, and what differs."""
        lines = [f"{self.change_id}: {self.match} match, {self.changed} changed, {self.missing} missing"]
        for item in self.items:
            if item.current is not None:
                recorded, current = item.recorded._asdict(), item.current._asdict()
                differing = ", ".join(f"{name} {recorded[name]} -> {current[name]}" for name in item.fields)
                lines += [f"  {item.id}: changed: {differing}"] if differing else []
            else:
                lines.append(f"  {item.id}: missing")
        return lines


class AuditRow(NamedTuple):
    """One audit row as committed."""

    target_id: int
    revision_before: int
    revision_after: int
    qty: int
    state_before: str
    state_after: str


@dataclass(frozen=True)
class Receipt:
    """A receipt as committed."""

    change_id: str
    kind: str
    tenant: str
    targets: tuple[Target, ...]
    digest: str
    actor: str
    reason: str
    created_at: datetime
    audit: tuple[AuditRow, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as the commands print it."""
        rows = {"targets": [row._asdict() for row in self.targets], "audit": [row._asdict() for row in self.audit]}
        return vars(self) | rows

    @property
    def is_genuine(self) -> bool:
        """Whether the digest is that of the content."""
        targets = canonical_targets(self.targets)
        return self.digest == digest(change_id=self.change_id, kind=self.kind, tenant=self.tenant, targets=targets)


def inspect_change(*, change_id: str, tenant: str | None = None, using: str | None = None) -> Receipt | None:
    """
    Return the receipt of a change with its audit rows, or None when there is none (for this tenant, if one is given).

    None means "not committed as far as can be seen now": a transaction that is still open may yet commit it.
    """
    alias = using or router.db_for_write(Change)
    found = Change.objects.using(alias).filter(pk=change_id)
    change = (found if tenant is None else found.filter(tenant=tenant)).first()
    # SQL Server takes a key with a blank at its end for the same.
    if change is None or change.change_id != change_id or tenant not in (None, change.tenant):
        return None
    audit = Audit.objects.using(alias).filter(change_id=change_id).order_by("target_id")
    return Receipt(
        change_id=change.change_id,
        kind=change.kind,
        tenant=change.tenant,
        targets=stored_targets(change.targets),
        digest=change.digest,
        actor=change.actor,
        reason=change.reason,
        created_at=change.created_at,
        audit=tuple(AuditRow(*row) for row in audit.values_list(*AuditRow._fields)),
    )


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
    return (compared(change_id, kind, tenant, alias) for change_id, kind, tenant in headers)


def headers_of(*, tenants: Collection[str] | None, using: str) -> Iterator[tuple[str, str, str]]:
    """Yield (change_id, kind, tenant) of every receipt of these tenants, or of all."""
    yield from of_tenants(tenants, using).in_pages()


def count_receipts(*, tenants: Collection[str] | None = None, using: str | None = None) -> int:
    """Return how many receipts there are, for a progress bar."""
    return of_tenants(tenants, using or router.db_for_write(Change)).count()


def of_tenants(tenants: Collection[str] | None, using: str) -> ChangeQuerySet:
    """Return the receipts of these tenants, or all."""
    receipts: ChangeQuerySet = Change.objects.using(using)
    return receipts if tenants is None else receipts.filter(tenant__in=sorted(tenants))


def kinds_of_receipts(*, change_ids: Iterable[str] | None = None, using: str | None = None) -> list[str]:
    """Return the kinds of these receipts, or of all."""
    receipts = Change.objects.using(using or router.db_for_write(Change))
    chosen = receipts if change_ids is None else receipts.filter(pk__in=list(change_ids))
    return sorted(chosen.order_by().values_list("kind", flat=True).distinct())


def compared(change_id: str, kind: str, tenant: str, alias: str) -> Reconciled:
    """Compare one receipt."""
    rows = joined(change_id, kind, tenant, alias)
    differing = [row for row in rows if row[1:4] != row[5:] or row[4] is None]
    missing = sum(row[4] is None for row in differing)
    return Reconciled(
        change_id, match=len(rows) - len(differing), changed=len(differing) - missing, missing=missing, rows=rows
    )


def joined(change_id: str, kind: str, tenant: str, alias: str) -> list[tuple[Any, ...]]:
    """Read audit rows and present rows in one statement, by id and never by count."""
    connection = connections[alias]
    shape = get_kind(kind).shape(connection)
    sql = f"""
        SELECT a.target_id, a.revision_after, a.qty, a.state_after, t.{shape.id}, t.{shape.revision}, t.{shape.qty},
            t.{shape.state}
        FROM receipts_audit a LEFT JOIN {shape.table} t ON t.{shape.id} = a.target_id AND t.{shape.tenant} = %s
        WHERE a.change_id = %s ORDER BY a.target_id"""  # noqa: S608 - names come from model fields and are quoted
    with connection.cursor() as cursor:
        cursor.execute(sql, [tenant, change_id])
        return cast(list[tuple[Any, ...]], cursor.fetchall())


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
            items=[item.as_json() for item in result.items if item.category != "match"],
        )
        if not try_renew(kept, alias):
            first = {"kind": kind, "tenant": tenant, "created_at": created_at, "reconciliation": kept}
            try:
                with transaction.atomic(using=alias):
                    Verdict.objects.using(alias).create(change_id=result.change_id, found=found_in(kept), **first)
            except IntegrityError:
                # Somebody else wrote the first one; if his is the later result, his stays.
                try_renew(kept, alias)
    return kept


def try_renew(kept: Reconciliation, using: str) -> bool:
    """Make a result the verdict unless a later one is it already; return whether it is."""
    older = Verdict.objects.using(using).filter(pk=kept.change_id, reconciliation__lt=kept.pk)
    return older.update(reconciliation=kept, found=found_in(kept)) == 1


def found_in(kept: Reconciliation) -> Found:
    """Return what a reconciliation says as a whole."""
    return Found.DIFFERS if kept.changed or kept.missing else Found.MATCH
