"""
Targets in the one canonical form, and the digest over it.

Two plans are the same change exactly when their digests are equal, so the form must never depend on the order in which
targets or keys were written, on a library's version, or on the database. It is RFC 8785 (JSON Canonicalization Scheme)
narrowed to what a plan has: keys in order, integers, NFC text in UTF-8, no blanks. ``verify.py`` beside this file
repeats it in its own words, and ``tests/receipts/vectors.json`` pins both.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import NamedTuple

#: Goes into the digest; grows when the form changes, so that old receipts can still be told from new ones.
VERSION = 1


class Target(NamedTuple):
    """One row of a change: its id, and the revision and qty that were approved."""

    id: int
    revision: int
    qty: int


def canonical_targets(targets: Iterable[Target]) -> list[dict[str, int]]:
    """Return targets sorted by id, each with its keys in order."""
    return [{"id": target.id, "qty": target.qty, "revision": target.revision} for target in sorted(targets)]


def canonical_bytes(*, change_id: str, kind: str, tenant: str, targets: Iterable[Target]) -> bytes:
    """Return what is hashed."""
    content = {
        "change_id": change_id,
        "kind": kind,
        "targets": canonical_targets(targets),
        "tenant": tenant,
        "version": VERSION,
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(*, change_id: str, kind: str, tenant: str, targets: Iterable[Target]) -> str:
    """Return the SHA-256 over version, change_id, kind, tenant and targets, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_bytes(change_id=change_id, kind=kind, tenant=tenant, targets=targets)).hexdigest()


def stored_targets(rows: Iterable[dict[str, int]]) -> tuple[Target, ...]:
    """Return targets from the form in which ``receipts_changes.targets`` keeps them."""
    return tuple(Target(id=row["id"], revision=row["revision"], qty=row["qty"]) for row in rows)
