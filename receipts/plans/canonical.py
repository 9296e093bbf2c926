"""
The canonical forms of a plan (version 1) and of a committed receipt (version 2), and the digests over them.

Version 1 identifies a change: two plans are the same change exactly when these digests are equal. Version 2 is what a
sealed receipt proves: all of version 1, and actor, reason, time and every audit row.

Neither may depend on the order in which targets or keys were written, on a library's version, or on the database. Both
are RFC 8785 (JSON Canonicalization Scheme) narrowed: keys sorted by code point, integers, text in UTF-8, no blanks; in
version 2 whatever is neither text, integer, boolean nor null (dates, decimals) is text already when it comes here.
``receipts/verify.py`` implements both a second time, and ``tests/receipts/vectors*.json`` pin both.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, NamedTuple

#: Is part of what is hashed.
VERSION = 1
RECEIPT_VERSION = 2


CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
#: Columns of ``receipts_changes`` in version 2, besides ``created_at``.
RECEIPT_NAMES = ("actor", "change_id", "digest", "kind", "reason", "targets", "tenant")
#: Those of a receipt that comes from a stored plan; left out where they are empty.
PLAN_NAMES = ("approver", "author")


class Target(NamedTuple):
    """One row of a change: its id, and the revision and qty that were approved."""

    id: int
    revision: int
    qty: int


class FieldTarget(Target):
    """
    One row of a change of a kind that names its fields: its id, and each column of the plan with its value.

    A value is text, an integer, a boolean or None, as `receipts.values` writes the fields' values. What the plan sets
    has the column ``set:<field>``. ``revision`` and ``qty`` are None unless they are columns.
    """

    values: dict[str, Any]

    def __new__(cls, id: int, values: Mapping[str, Any]) -> "FieldTarget":
        made = super().__new__(cls, id, values.get("revision"), values.get("qty"))  # type: ignore[arg-type]
        made.values = dict(values)
        return made

    def _asdict(self) -> dict[str, Any]:
        return {"id": self.id, **self.values}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldTarget) and self._asdict() == other._asdict()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.id)


def canonical_targets(targets: Iterable[Target]) -> str:
    """Return targets as JSON text: sorted by id, each with its keys in order."""
    targets = sorted(targets, key=itemgetter(0))
    if any(isinstance(target, FieldTarget) for target in targets):
        return canonical_json([target._asdict() for target in targets])
    # Written out, because it is a fifth of the time of json.dumps, and there are ten thousand of them.
    rows = [f'{{"id":{pk:d},"qty":{qty:d},"revision":{revision:d}}}' for pk, revision, qty in targets]
    return f"[{','.join(rows)}]"


def canonical_text(*, change_id: str, kind: str, tenant: str, targets: str) -> str:
    """Return what is hashed; ``targets`` are in their canonical form already."""
    names = (json.dumps(name, ensure_ascii=False) for name in (change_id, kind, tenant))
    return '{{"change_id":{},"kind":{},"targets":{targets},"tenant":{},"version":{version}}}'.format(
        *names, targets=targets, version=VERSION
    )


def digest(*, change_id: str, kind: str, tenant: str, targets: str) -> str:
    """Return the SHA-256 over version, change_id, kind, tenant and canonical targets, as 64 hexadecimal digits."""
    text = canonical_text(change_id=change_id, kind=kind, tenant=tenant, targets=targets)
    return hashlib.sha256(text.encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """Return a JSON value as canonical text."""
    return CANONICAL.encode(value)


def canonical_time(moment: datetime) -> str:
    """Return a moment in UTC with six decimals: ``2026-01-31T08:00:00.000000Z``."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def canonical_audit(rows: Iterable[Mapping[str, Any]]) -> str:
    """
    Return audit rows as canonical text, sorted by ``target_id``.

    A row is a mapping of the columns of ``receipts_audit`` without ``id`` and ``change_id``. A column that is NULL is
    left out, so that a column added later does not change the form of earlier receipts.
    """
    kept = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return canonical_json(sorted(kept, key=lambda row: row["target_id"]))


def canonical_receipt(receipt: Mapping[str, Any], *, audit: str) -> str:
    """
    Return a committed receipt in the canonical form, version 2.

    ``receipt`` has the columns of ``receipts_changes``, ``targets`` as the parsed JSON; ``audit`` is already canonical.
    """
    parts = {name: canonical_json(receipt[name]) for name in RECEIPT_NAMES}
    parts |= {name: canonical_json(receipt[name]) for name in PLAN_NAMES if receipt.get(name)}
    parts |= {"audit": audit, "created_at": canonical_json(canonical_time(receipt["created_at"]))}
    parts["version"] = str(RECEIPT_VERSION)
    return "{" + ",".join(f'"{name}":{parts[name]}' for name in sorted(parts)) + "}"


def text_digest(text: str) -> str:
    """Return the SHA-256 of a canonical text, as 64 hexadecimal digits."""
    # JSON in a database may hold half a surrogate pair; UTF-8 proper has no bytes for it.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def stored_targets(rows: Iterable[Mapping[str, Any]]) -> tuple[Target, ...]:
    """Return targets from the form in which ``receipts_changes.targets`` keeps them. Raises: KeyError, TypeError."""
    return tuple(stored_target(row) for row in rows)


def stored_target(row: Mapping[str, Any]) -> Target:
    """Return one target from the form in which it is kept."""
    if row.keys() == {"id", "revision", "qty"}:
        return Target(id=row["id"], revision=row["revision"], qty=row["qty"])
    return FieldTarget(row["id"], {name: value for name, value in row.items() if name != "id"})
