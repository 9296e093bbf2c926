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


def canonical_targets(targets: Iterable[Target]) -> str:
    """Return targets as JSON text: sorted by id, each with its keys in order."""
    # Written out, because it is a fifth of the time of json.dumps, and there are ten thousand of them.
    rows = [f'{{"id":{pk:d},"qty":{qty:d},"revision":{revision:d}}}' for pk, revision, qty in sorted(targets)]
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


def stored_targets(rows: Iterable[dict[str, int]]) -> tuple[Target, ...]:
    """Return targets from the form in which ``receipts_changes.targets`` keeps them."""
    return tuple(Target(id=row["id"], revision=row["revision"], qty=row["qty"]) for row in rows)
