"""The canonical form and its digest, pinned by golden vectors, and the verifier that stands alone."""

import hashlib
import json
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receipts import verify
from receipts.plans.canonical import (
    Target,
    canonical_audit,
    canonical_receipt,
    canonical_targets,
    canonical_text,
    digest,
    text_digest,
)

HERE = Path(__file__).parent
VECTORS = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))


def content(vector):
    """Return a vector as the arguments of digest."""
    targets = [Target(**row) for row in vector["targets"]]
    return {key: vector[key] for key in ("change_id", "kind", "tenant")} | {"targets": canonical_targets(targets)}


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_the_form_and_the_digest_are_those_of_the_golden_vectors(vector):
    assert canonical_text(**content(vector)) == vector["canonical"]
    assert digest(**content(vector)) == vector["digest"]
    assert verify.recomputed(vector) == vector["digest"]


def test_every_part_of_the_content_is_in_the_digest():
    assert len({vector["digest"] for vector in VECTORS}) == len(VECTORS)


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
numbers = st.integers(0, 2**63 - 1)
rows = st.lists(st.builds(Target, numbers, numbers, numbers), min_size=1, max_size=8, unique_by=lambda row: row.id)


@settings(deadline=None)
@given(text, text, rows, st.randoms(use_true_random=False))
def test_the_order_of_targets_does_not_matter_and_the_verifier_agrees(change_id, tenant, targets, random):
    """R1: whatever the order in which targets or keys were written."""
    shuffled = random.sample(targets, len(targets))
    text = canonical_targets(targets)
    given_digest = digest(change_id=change_id, kind="cancel", tenant=tenant, targets=text)

    assert canonical_targets(shuffled) == text
    receipt = {"change_id": change_id, "kind": "cancel", "tenant": tenant}
    assert verify.recomputed(receipt | {"targets": [row._asdict() for row in targets]}) == given_digest


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [({}, 0, "digest holds"), ({"tenant": "b"}, 1, "DIGEST DIFFERS"), ({"targets": None}, 2, "no receipt")],
)
def test_the_verifier_needs_neither_django_nor_a_database(tmp_path, changed, code, said):
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(VECTORS[0] | changed), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-I", "-S", verify.__file__, str(file)], capture_output=True, text=True, check=False
    )

    assert done.returncode == code
    assert said in done.stdout + done.stderr


RECEIPT = {
    "change_id": "CHG-1",
    "kind": "cancel",
    "tenant": "acmé",
    "targets": [{"id": 1, "revision": 4, "qty": 10}],
    "digest": "00ff",
    "actor": "ann",
    "reason": 'said "no"\n',
    # Ten past nine in Warsaw, written in UTC.
    "created_at": datetime(2026, 1, 31, 9, 10, 0, 7, tzinfo=timezone(timedelta(hours=1))),
}
AUDIT = [
    {"target_id": 2, "revision_before": 1, "qty": None, "after": {"note": None, "due": "2026-02-01"}},
    {"target_id": 1, "revision_before": 4, "qty": 10, "after": None},
]
RECEIPT_TEXT = (
    '{"actor":"ann","audit":[{"qty":10,"revision_before":4,"target_id":1},'
    '{"after":{"due":"2026-02-01","note":null},"revision_before":1,"target_id":2}],"change_id":"CHG-1",'
    '"created_at":"2026-01-31T08:10:00.000007Z","digest":"00ff","kind":"cancel","reason":"said \\"no\\"\\n",'
    '"targets":[{"id":1,"qty":10,"revision":4}],"tenant":"acmé","version":2}'
)


def test_version_2_covers_actor_reason_time_and_audit_rows():
    text = canonical_receipt(RECEIPT, audit=canonical_audit(AUDIT))

    assert text == RECEIPT_TEXT
    assert text_digest(text) == hashlib.sha256(RECEIPT_TEXT.encode()).hexdigest()


@pytest.mark.parametrize("name", [*RECEIPT, "audit"])
def test_no_part_of_version_2_can_change_without_its_digest(name):
    changed = {"created_at": RECEIPT["created_at"] + timedelta(microseconds=1), "targets": []}.get(name, "other")
    audit = canonical_audit(AUDIT[:1] if name == "audit" else AUDIT)

    assert canonical_receipt(RECEIPT | {name: changed}, audit=audit) != RECEIPT_TEXT
