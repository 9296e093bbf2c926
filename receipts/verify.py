#!/usr/bin/env python3
"""
Recompute a receipt's digest from its content. Needs Python and nothing else: no Django, no database, no Kwit.

``python verify.py FILE`` (``-`` for stdin) reads what ``manage.py inspect_change CHANGE_ID --json`` has printed, or a
list of such objects. Exit: 0 every digest is that of its content, 1 one is not, 2 the file is no such thing.

The digest is SHA-256 over one JSON object in UTF-8: keys change_id, kind, targets, tenant, version in this order, no
blanks, characters outside ASCII as themselves; targets sorted by id, each with the keys id, qty, revision. It shows
that content and digest belong together, not who wrote them: whoever may write to the database can write both.
"""

import hashlib
import json
import sys
from typing import Any

VERSION = 1


def recomputed(receipt: dict[str, Any]) -> str:
    """Return the digest of a receipt's content."""
    content = {key: receipt[key] for key in ("change_id", "kind", "tenant")} | {"version": VERSION}
    content["targets"] = sorted(receipt["targets"], key=lambda row: row["id"])
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def main(name: str) -> int:
    """Verify every receipt in a file."""
    try:
        with sys.stdin if name == "-" else open(name, encoding="utf-8") as file:
            content = json.load(file)
        receipts = content if isinstance(content, list) else [content]
        verdicts = [(receipt["change_id"], recomputed(receipt) == receipt["digest"]) for receipt in receipts]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"{name}: no receipt as inspect_change prints it: {error!r}\n")
        return 2
    for change_id, holds in verdicts:
        sys.stdout.write(f"{change_id}: {'digest holds' if holds else 'DIGEST DIFFERS'}\n")
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else "-"))
