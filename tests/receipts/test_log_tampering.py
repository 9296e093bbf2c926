"""
What the owner of a real database can do to sealed receipts, and that the audit of the log finds and names it.

Each test drops the guards, as the owner may, writes, and puts the guards back. A checkpoint was kept outside before.
"""

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from receipts.models import Checkpoint, Leaf
from receipts.sealing.audit import audit_log
from receipts.sealing.keys import Keys, load_keys
from receipts.sealing.log import Inconsistent, make_proof
from receipts.sealing.merkle import Tree, leaf_hash
from receipts.sealing.notes import Head, Note, SigningKey
from receipts.sealing.seal import seal_receipts
from tests.receipts import second_verifier as second
from tests.receipts.kept import make_receipt
from tests.receipts.test_broken import as_owner

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def key(settings):
    made = SigningKey.generate("example.com/receipts")
    settings.RECEIPTS = {"LOG_KEYS": made.export()}
    return made


@pytest.fixture
def kept(key, tmp_path):
    """Seal six receipts in two checkpoints; return the file of the second, kept outside."""
    for number in range(6):
        moment = timezone.now() + timedelta(milliseconds=number)
        make_receipt(f"CHG-{number}", ids=[10 * number + 1, 10 * number + 2], at=moment)
        if number in (2, 5):
            seal_receipts()
    file = tmp_path / "kept"
    file.write_text(Checkpoint.objects.get(number=2).note, encoding="utf-8")
    assert audited(file) == (0, [])
    return file


def audited(file=None, *more):
    """Return the exit code of the audit, and what it names: problem and subject."""
    out, code = StringIO(), 0
    since = ["--since", str(file)] if file else []
    try:
        call_command("receipts_audit_log", *since, *more, "--json", stdout=out, stderr=StringIO())
    except CommandError as error:
        code = error.returncode
    return code, [(one["problem"], one["about"]) for one in json.loads(out.getvalue())["findings"]]


def rewrite_leaves(order, *, drop=0):
    """Write all leaves anew in this order with hashes that fit, as a careful forger would."""
    leaves = list(Leaf.objects.order_by("position"))
    chosen = [leaves[at] for at in order][: len(order) - drop]
    tree, rows = Tree(), []
    for position, leaf in enumerate(chosen):
        hashes = "".join(one.hex() for one in tree.append(leaf_hash(bytes.fromhex(leaf.digest))))
        values = (position, position - 1 if position else None, leaf.change_id, leaf.digest, leaf.audit_digest, hashes)
        columns = "position, previous_id, change_id, digest, audit_digest, hashes"
        rows.append((f"INSERT INTO receipts_leaf ({columns}) VALUES (%s, %s, %s, %s, %s, %s)", values))
    checkpoints = [
        (
            "INSERT INTO receipts_checkpoint (number, previous_id, size, last_leaf_id, root, note, is_full, created_at)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (one.number, one.previous_id, one.size, one.last_leaf_id, one.root, one.note, one.is_full, one.created_at),
        )
        for one in Checkpoint.objects.order_by("number")
        if one.size <= len(chosen)
    ]
    backwards = [("DELETE FROM receipts_leaf WHERE position = %s", [leaf.position]) for leaf in reversed(leaves)]
    return [
        "DELETE FROM receipts_publication",
        "DELETE FROM receipts_checkpoint WHERE number = 2",
        "DELETE FROM receipts_checkpoint",
        *backwards,
        *rows,
        *checkpoints,
    ]


# Receipts and audit rows.


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("actor", "mallory"),
        ("reason", "because"),
        ("created_at", "2020-01-01 00:00:00.000"),
        ("tenant", "zeta"),
        ("digest", "0" * 64),
        ("targets", "[]"),
        ("kind", "accept"),
    ],
)
def test_a_receipt_that_was_changed_is_named(kept, column, value):
    value = timezone.now() - timedelta(days=300) if column == "created_at" else value
    as_owner((f"UPDATE receipts_changes SET {column} = %s WHERE change_id = 'CHG-3'", [value]))

    assert audited(kept) == (5, [("receipt_changed", "CHG-3")])


def test_an_audit_row_that_was_added_is_named(kept):
    columns = "change_id, target_id, revision_before, revision_after, qty, state_before, state_after"
    as_owner(f"INSERT INTO receipts_audit ({columns}) VALUES ('CHG-1', 99, 1, 2, 3, 'a', 'b')")

    assert audited(kept) == (5, [("audit_changed", "CHG-1")])


@pytest.mark.parametrize("change", ["qty = 11", "state_after = 'x'", "state_before = 'x'", "revision_after = 9"])
def test_an_audit_row_that_was_changed_is_named(kept, change):
    as_owner(f"UPDATE receipts_audit SET {change} WHERE target_id = 11")

    assert audited(kept) == (5, [("audit_changed", "CHG-1")])


def test_an_audit_row_that_was_deleted_is_named(kept):
    as_owner("DELETE FROM receipts_audit WHERE target_id = 11")

    assert audited(kept) == (5, [("audit_changed", "CHG-1")])


def test_a_receipt_that_was_deleted_with_its_audit_rows_is_named(kept):
    as_owner(
        "DELETE FROM receipts_audit WHERE change_id = 'CHG-4'",
        "DELETE FROM receipts_changes WHERE change_id = 'CHG-4'",
    )

    assert audited(kept) == (5, [("receipt_deleted", "CHG-4")])


def test_a_receipt_that_was_changed_gives_a_proof_that_fails(kept, key):
    assert second.is_sealed(make_proof("CHG-3", "default"), str(key.public))

    as_owner("UPDATE receipts_changes SET actor = 'mallory' WHERE change_id = 'CHG-3'")

    assert not second.is_sealed(make_proof("CHG-3", "default"), str(key.public))


def test_a_receipt_that_is_exchanged_together_with_its_leaf_breaks_the_tree(kept):
    """The forger writes receipt, audit rows and digests so that they agree."""
    as_owner(
        "DELETE FROM receipts_audit WHERE change_id = 'CHG-3'",
        "DELETE FROM receipts_changes WHERE change_id = 'CHG-3'",
    )
    make_receipt("CHG-3", ids=[777], at=timezone.now())
    from receipts.sealing.log import read_entries

    entry = read_entries(["CHG-3"], "default")["CHG-3"]
    as_owner(
        (
            "UPDATE receipts_leaf SET digest = %s, audit_digest = %s, hashes = %s WHERE change_id = 'CHG-3'",
            [entry.digest, entry.audit_digest, Leaf.objects.get(change_id="CHG-3").hashes],
        )
    )

    code, found = audited(kept)

    assert code == 5
    assert ("tree_changed", "checkpoint 2") in found
    assert ("tree_changed", "kept checkpoint of 6 leaves") in found
    assert ("leaf_changed", "leaf 3") in found


# The tree.


def test_leaves_in_another_order_are_named_even_when_all_hashes_fit(kept):
    as_owner(*rewrite_leaves([0, 1, 2, 4, 3, 5]))

    assert audited(kept) == (5, [("order_changed", "checkpoint 2"), ("order_changed", "kept checkpoint of 6 leaves")])


def test_a_tree_that_was_cut_back_is_found_by_the_checkpoint_outside_alone(kept):
    """A restored backup agrees with itself."""
    as_owner(*rewrite_leaves([0, 1, 2, 3, 4, 5], drop=3))

    assert audited() == (0, [])
    assert audited(kept) == (
        5,
        [("tree_cut_back", "kept checkpoint of 6 leaves"), ("checkpoint_missing", "kept checkpoint of 6 leaves")],
    )


def test_leaves_that_are_missing_in_the_middle_are_named(kept):
    switch = "ALTER TABLE receipts_leaf {} TRIGGER ALL"
    off, on = ([switch.format(way)] if connection.vendor == "postgresql" else [] for way in ("DISABLE", "ENABLE"))
    with connection.constraint_checks_disabled():
        as_owner(*off, "DELETE FROM receipts_leaf WHERE position = 1", *on)

    code, found = audited(kept)

    assert code == 5
    with pytest.raises(Inconsistent, match="leaf 1 is missing"):
        make_proof("CHG-0", "default")
    assert ("leaf_missing", "leaf 1") in found
    assert ("tree_changed", "checkpoint 1") in found


def test_stored_hashes_that_are_not_those_of_the_leaves_are_named(kept):
    as_owner(("UPDATE receipts_leaf SET hashes = %s WHERE position = 2", ["0" * 64]))

    assert audited(kept) == (5, [("leaf_changed", "leaf 2")])


# Checkpoints and keys.


def test_a_checkpoint_that_is_missing_is_named(kept):
    as_owner("DELETE FROM receipts_publication", "DELETE FROM receipts_checkpoint WHERE number = 2")

    assert audited(kept) == (5, [("checkpoint_missing", "kept checkpoint of 6 leaves")])


def test_leaves_without_any_checkpoint_are_named(kept):
    as_owner(
        "DELETE FROM receipts_publication",
        "DELETE FROM receipts_checkpoint WHERE number = 2",
        "DELETE FROM receipts_checkpoint WHERE number = 1",
    )

    assert audited() == (5, [("checkpoint_missing", "checkpoint 1")])


def test_a_checkpoint_signed_by_another_key_is_named(kept, key):
    other = SigningKey.generate("example.com/receipts")
    text = Note.parse(Checkpoint.objects.get(number=2).note).text
    as_owner(("UPDATE receipts_checkpoint SET note = %s WHERE number = 2", [str(Note(text, (other.sign(text),)))]))

    assert audited(kept) == (5, [("key_unknown", "checkpoint 2")])


def test_a_checkpoint_of_a_key_that_this_site_forgot_is_named_until_it_is_given(kept, key, settings, tmp_path):
    settings.RECEIPTS = {}
    (tmp_path / "old.vkey").write_text(str(key.public))

    code, found = audited(kept)

    assert (code, {problem for problem, _ in found}) == (5, {"key_unknown"})
    assert audited(kept, "--key", str(tmp_path / "old.vkey")) == (0, [])


def test_a_signature_that_does_not_fit_is_named(kept, key):
    text = Note.parse(Checkpoint.objects.get(number=2).note).text
    as_owner(("UPDATE receipts_checkpoint SET note = %s WHERE number = 2", [str(Note(text, (key.sign("x\n"),)))]))

    assert audited(kept) == (5, [("signature_wrong", "checkpoint 2")])


def test_a_checkpoint_whose_columns_are_not_those_of_its_note_is_named(kept):
    as_owner(("UPDATE receipts_checkpoint SET root = %s WHERE number = 2", ["0" * 64]))

    assert audited(kept) == (5, [("checkpoint_changed", "checkpoint 2")])


def test_a_forger_with_the_key_is_found_by_the_checkpoint_outside(kept, key):
    """The holder of the key signs another tree: the database agrees with itself."""
    as_owner(*rewrite_leaves([0, 1, 2, 5, 4, 3]))
    tree = Tree()
    for digest in Leaf.objects.order_by("position").values_list("digest", flat=True):
        tree.append(leaf_hash(bytes.fromhex(digest)))
    text = str(Head(key.name, tree.size, tree.root))
    values = [tree.root.hex(), str(Note(text, (key.sign(text),)))]
    as_owner(("UPDATE receipts_checkpoint SET root = %s, note = %s WHERE number = 2", values))

    assert audited() == (0, [])
    assert audited(kept)[1] == [
        ("order_changed", "kept checkpoint of 6 leaves"),
        ("checkpoint_missing", "kept checkpoint of 6 leaves"),
    ]


def test_what_was_kept_outside_must_be_a_checkpoint(kept, tmp_path):
    (tmp_path / "other").write_text("nothing of the kind")

    with pytest.raises(CommandError) as refused:
        call_command("receipts_audit_log", "--since", str(tmp_path / "other"), stdout=StringIO())

    assert refused.value.returncode == 1


def test_an_untouched_log_has_no_findings_whatever_is_not_sealed_yet(kept):
    make_receipt("NEW", ids=[500], at=timezone.now())

    report = audit_log("default", keys=load_keys(), since=kept.read_text())

    assert (report.findings, report.leaves, report.checkpoints, report.unsealed) == ([], 6, 2, 1)
    assert Keys().own == []
