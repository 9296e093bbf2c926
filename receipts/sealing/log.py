"""The stored log: what is hashed of a receipt, and the nodes of the tree as they are kept in ``receipts_leaf``."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..errors import ReceiptsError
from ..models import Audit, Change, Checkpoint, Leaf
from ..plans.canonical import PLAN_NAMES, RECEIPT_NAMES, canonical_audit, canonical_receipt, text_digest
from .merkle import Node, Tree, fold, inclusion_proof, leaf_hash, peaks_of
from .notes import format_proof

#: What version 2 of the canonical form has of an audit row: all its columns, so that a new one is covered, too.
AUDIT_COLUMNS = tuple(
    field.attname for field in Audit._meta.concrete_fields if field.attname not in (Audit._meta.pk.attname, "change_id")
)
#: Hexadecimal digits of one hash.
HASH_CHARS = 64
#: Rows asked for by their keys in one statement; SQL Server takes 2,048 in a list.
KEYS_MAX = 1000


class Inconsistent(ReceiptsError):
    """The log is damaged, or does not continue a checkpoint that was signed before: nothing more is signed."""


class Entry(NamedTuple):
    """A receipt as it is sealed: its canonical form (version 2) and the digests of it and of its audit rows."""

    change_id: str
    text: str
    digest: str
    audit_digest: str

    @property
    def leaf_hash(self) -> bytes:
        """The hash of its leaf, by which it can be found in the log."""
        return leaf_hash(bytes.fromhex(self.digest))


def read_entries(change_ids: Iterable[str], alias: str) -> dict[str, Entry]:
    """Return the entries of these receipts, by change_id; two queries. One that is not there is left out."""
    ids = list(change_ids)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in Audit.objects.using(alias).filter(change_id__in=ids).values("change_id", *AUDIT_COLUMNS):
        rows[row.pop("change_id")].append(row)
    receipts = Change.objects.using(alias).filter(pk__in=ids).values(*RECEIPT_NAMES, *PLAN_NAMES, "created_at")
    return {receipt["change_id"]: make_entry(receipt, rows[receipt["change_id"]]) for receipt in receipts}


def make_entry(receipt: dict[str, Any], audit_rows: list[dict[str, Any]]) -> Entry:
    """Return the entry of a receipt and its audit rows."""
    audit = canonical_audit(audit_rows)
    text = canonical_receipt(receipt, audit=audit)
    return Entry(receipt["change_id"], text, text_digest(text), text_digest(audit))


def node_in(hashes: str, level: int) -> bytes:
    """Return the hash of one level from what a leaf keeps."""
    return bytes.fromhex(hashes[level * HASH_CHARS : (level + 1) * HASH_CHARS])


def read_nodes(nodes: list[Node], alias: str) -> dict[Node, bytes]:
    """Return the hashes of these nodes, each from the leaf that completes it: one row each. Raises: Inconsistent."""
    leaves = sorted({node.last_leaf for node in nodes})
    hashes: dict[int, str] = {}
    for start in range(0, len(leaves), KEYS_MAX):
        some = Leaf.objects.using(alias).filter(position__in=leaves[start : start + KEYS_MAX])
        hashes |= dict(some.values_list("position", "hashes"))
    if absent := set(leaves) - set(hashes):
        raise Inconsistent(f"leaf {min(absent)} is missing; run manage.py receipts_audit_log")
    return {node: node_in(hashes[node.last_leaf], node.level) for node in nodes}


def count_leaves(alias: str) -> int:
    """Return how many receipts are sealed: the sequence has no gaps."""
    last = Leaf.objects.using(alias).order_by("-position").values_list("position", flat=True).first()
    return 0 if last is None else last + 1


def read_tree(alias: str) -> Tree:
    """Return the tree as it stands, ready for more leaves; O(log n) rows."""
    size = count_leaves(alias)
    peaks = peaks_of(size)
    found = read_nodes(peaks, alias)
    return Tree(size, [found[node] for node in peaks])


def read_root(size: int, alias: str) -> bytes:
    """Return the root of the first leaves; O(log n) rows."""
    peaks = peaks_of(size)
    found = read_nodes(peaks, alias)
    return fold([found[node] for node in peaks])


def newest_checkpoint(alias: str) -> Checkpoint | None:
    """Return the newest checkpoint, None before the first."""
    found: Checkpoint | None = Checkpoint.objects.using(alias).order_by("-number").first()
    return found


def whole_note(checkpoint: Checkpoint) -> str:
    """Return a checkpoint as it was signed, with the cosignatures of its witnesses."""
    lines = checkpoint.cosignatures.order_by("pk").values_list("line", flat=True)
    return checkpoint.note + "".join(f"{line}\n" for line in lines)


class Seal(NamedTuple):
    """Where a receipt stands in the log: its leaf, and the first checkpoint that covers it (None: not signed yet)."""

    position: int
    digest: str
    checkpoint: Checkpoint | None


def get_seal(change_id: str, alias: str) -> Seal | None:
    """Return how a receipt is sealed, None while it is not; two queries."""
    leaf = Leaf.objects.using(alias).filter(change_id=change_id).values_list("position", "digest").first()
    if leaf is None:
        return None
    covering = Checkpoint.objects.using(alias).filter(size__gt=leaf[0]).order_by("size", "number")
    return Seal(*leaf, covering.first())


def make_proof(change_id: str, alias: str) -> str | None:
    """
    Return a receipt's ``.tlog-proof`` with the receipt in it, against the newest checkpoint; None while it has none.

    The receipt is read from the tables as they are now: a receipt that was changed since gives a proof that fails.
    """
    seal, checkpoint = get_seal(change_id, alias), newest_checkpoint(alias)
    entry = read_entries([change_id], alias).get(change_id)
    if seal is None or checkpoint is None or entry is None or seal.position >= checkpoint.size:
        return None
    hashes = inclusion_proof(seal.position, checkpoint.size, lambda nodes: read_nodes(nodes, alias))
    extra = entry.text.encode("utf-8", "surrogatepass")
    return format_proof(index=seal.position, hashes=hashes, checkpoint=whole_note(checkpoint), extra=extra)
