"""
Recompute the whole log from the tables, and say what is wrong with it.

It trusts nothing that is stored: each receipt is hashed again, the tree is built again, and its roots are compared with
those that checkpoints have signed, in the database and outside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..models import Change, Checkpoint, Leaf
from .keys import Keys
from .log import read_entries
from .merkle import Tree, leaf_hash
from .notes import Head, InvalidNote, InvalidSignature, Note
from .sealer import unsealed

#: Leaves read and recomputed at once.
LEAVES_READ = 500


class Finding(NamedTuple):
    """One thing that is wrong. ``about`` names a receipt, a leaf or a checkpoint."""

    problem: str
    about: str
    text: str

    def as_json(self) -> dict[str, str]:
        """Return it as the command prints it."""
        return self._asdict()


@dataclass
class AuditReport:
    """What an audit of the log has found."""

    leaves: int = 0
    checkpoints: int = 0
    unsealed: int = 0
    #: Checkpoints that no key has signed: the tree is built, but nobody vouches for it.
    unsigned: int = 0
    findings: list[Finding] = field(default_factory=list)


class LeafRow(NamedTuple):
    """One stored leaf."""

    position: int
    change_id: str
    digest: str
    audit_digest: str
    hashes: str


def audit_log(alias: str, *, keys: Keys, since: str | None = None, progress: Any = lambda number: None) -> AuditReport:
    """
    Compare tables, tree and checkpoints; ``since`` is a checkpoint that was kept outside, as text.

    Reads only. Raises: InvalidNote when ``since`` is no checkpoint.
    """
    outside = None if since is None else Note.parse(since)
    kept = None if outside is None else Head.parse(outside.text)
    report = AuditReport(unsealed=unsealed(alias, since=None).count())
    checkpoints = list(Checkpoint.objects.using(alias).order_by("number"))
    report.checkpoints = len(checkpoints)
    sizes = {checkpoint.size for checkpoint in checkpoints} | ({kept.size} if kept else set())
    roots = recompute(report, sizes, alias, progress)
    report.findings += checkpoint_findings(report, checkpoints, roots, keys, alias)
    if outside is not None and kept is not None:
        report.findings += outside_findings(report, checkpoints, outside, kept, roots, keys, alias)
    return report


def recompute(report: AuditReport, sizes: set[int], alias: str, progress: Any) -> dict[int, bytes]:
    """Hash every sealed receipt again, note what differs, and return the roots at these sizes."""
    tree, roots = Tree(), {}
    differing_leaves: list[int] = []
    if 0 in sizes:
        roots[0] = tree.root
    for leaves in leaf_pages(alias):
        entries = read_entries([leaf.change_id for leaf in leaves], alias)
        for leaf in leaves:
            if leaf.position != report.leaves:
                missing = f"{report.leaves}" if leaf.position == report.leaves + 1 else f"{report.leaves} and more"
                report.findings.append(
                    Finding("leaf_missing", f"leaf {missing}", f"the sequence goes on with leaf {leaf.position}")
                )
            entry = entries.get(leaf.change_id)
            if entry is None:
                report.findings.append(
                    Finding(
                        "receipt_deleted", leaf.change_id, f"leaf {leaf.position} is of a receipt that is not there"
                    )
                )
            elif entry.digest != leaf.digest:
                report.findings.append(differing(leaf, is_audit=entry.audit_digest != leaf.audit_digest))
            # The tree is that of what was sealed: a receipt that was changed since is said once, above.
            completed = tree.append(leaf_hash(bytes.fromhex(leaf.digest)))
            if leaf.hashes != "".join(one.hex() for one in completed):
                differing_leaves.append(leaf.position)
            report.leaves = leaf.position + 1
            if tree.size in sizes:
                roots[tree.size] = tree.root
        progress(len(leaves))
    if differing_leaves:
        # One that was exchanged makes those of all subtrees above it differ.
        text = f"the hashes of {len(differing_leaves)} stored leaves are not those of the leaves up to them"
        report.findings.append(Finding("leaf_changed", f"leaf {differing_leaves[0]}", text))
    return roots


def differing(leaf: LeafRow, *, is_audit: bool) -> Finding:
    """Say which part of a receipt is not what was sealed."""
    if is_audit:
        text = "its audit rows are not those that were sealed: one was added, changed or deleted"
        return Finding("audit_changed", leaf.change_id, text)
    return Finding("receipt_changed", leaf.change_id, "its row in receipts_changes is not the one that was sealed")


def leaf_pages(alias: str) -> Iterator[list[LeafRow]]:
    """Yield all leaves in their order, page by page."""
    last = -1
    leaves = Leaf.objects.using(alias).order_by("position")
    while True:
        rows = leaves.filter(position__gt=last).values_list(*LeafRow._fields)[:LEAVES_READ]
        page = [LeafRow(*row) for row in rows]
        if not page:
            return
        yield page
        last = page[-1].position


def checkpoint_findings(
    report: AuditReport, checkpoints: Sequence[Checkpoint], roots: dict[int, bytes], keys: Keys, alias: str
) -> Iterator[Finding]:
    """Compare the stored checkpoints with the tree that was recomputed."""
    expected, before = 1, 0
    for checkpoint in checkpoints:
        about = f"checkpoint {checkpoint.number}"
        if checkpoint.number != expected:
            absent = f"{expected}" if checkpoint.number == expected + 1 else f"{expected} to {checkpoint.number - 1}"
            yield Finding("checkpoint_missing", f"checkpoint {absent}", f"the sequence goes on with {about}")
        expected = checkpoint.number + 1
        try:
            note = Note.parse(checkpoint.note)
            head = Head.parse(note.text)
        except InvalidNote as error:
            yield Finding("checkpoint_changed", about, f"its note is no checkpoint: {error}")
            continue
        if (head.size, head.root.hex()) != (checkpoint.size, checkpoint.root):
            yield Finding("checkpoint_changed", about, "its columns are not what its note says")
        if head.size < before:
            yield Finding("tree_cut_back", about, f"it has {head.size} leaves, the one before it {before}")
        before = head.size
        yield from signature_findings(report, note, about, keys)
        yield from root_findings(report, head, about, roots, alias, start=start_of(checkpoints, checkpoint))
    if report.leaves and not checkpoints:
        yield Finding("checkpoint_missing", "checkpoint 1", f"{report.leaves} leaves are covered by no checkpoint")


def start_of(checkpoints: Sequence[Checkpoint], checkpoint: Checkpoint) -> int:
    """Return where the leaves begin that a checkpoint has more than those before it."""
    return max((one.size for one in checkpoints if one.number < checkpoint.number), default=0)


def signature_findings(report: AuditReport, note: Note, about: str, keys: Keys) -> Iterator[Finding]:
    """Check who has signed a checkpoint."""
    if not note.signatures:
        report.unsigned += 1
        return
    try:
        if not note.signers(keys.own):
            names = ", ".join(f"{line.name}+{line.key_id.hex()}" for line in note.signatures)
            yield Finding("key_unknown", about, f"it is signed by {names}, which is none of the known keys")
    except InvalidSignature as error:
        yield Finding("signature_wrong", about, str(error))


def root_findings(
    report: AuditReport, head: Head, about: str, roots: dict[int, bytes], alias: str, *, start: int
) -> Iterator[Finding]:
    """Compare the root that a checkpoint signed with that of the leaves."""
    if head.size > report.leaves:
        text = f"it signed {head.size} leaves, the log has {report.leaves}: an older backup was restored, or cut off"
        yield Finding("tree_cut_back", about, text)
    elif roots.get(head.size) != head.root:
        if (root := root_in_order(alias, head.size, start)) is not None and root == head.root:
            text = f"the leaves {start} to {head.size - 1} are there, but stand in another order than was signed"
            yield Finding("order_changed", about, text)
        else:
            yield Finding("tree_changed", about, f"its root is not that of the first {head.size} leaves")


def root_in_order(alias: str, size: int, start: int) -> bytes | None:
    """Return the root that the leaves from ``start`` on have when they are put into the order of sealing."""
    tree = Tree()
    rows = list(
        Leaf.objects.using(alias).filter(position__lt=size).order_by("position").values_list("change_id", "digest")
    )
    receipts = Change.objects.using(alias).in_bulk([change_id for change_id, _ in rows[start:]])
    if len(receipts) != len(rows) - start:
        return None
    tail = sorted(rows[start:], key=lambda row: (receipts[row[0]].created_at, row[0]))
    for _, digest in [*rows[:start], *tail]:
        tree.append(leaf_hash(bytes.fromhex(digest)))
    return tree.root


def outside_findings(
    report: AuditReport,
    checkpoints: Sequence[Checkpoint],
    note: Note,
    head: Head,
    roots: dict[int, bytes],
    keys: Keys,
    alias: str,
) -> Iterator[Finding]:
    """Compare the checkpoint that was kept outside with the tree and with the stored ones."""
    about = f"kept checkpoint of {head.size} leaves"
    yield from signature_findings(report, note, about, keys)
    smaller = [one.size for one in checkpoints if one.size < head.size]
    yield from root_findings(report, head, about, roots, alias, start=max(smaller, default=0))
    if not any(Note.parse(one.note).text == note.text for one in checkpoints):
        yield Finding("checkpoint_missing", about, "the database has no such checkpoint any more")
