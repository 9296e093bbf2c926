"""Trees, notes and checkpoints: vectors of the specifications, and a second verifier that shares no code."""

import base64
import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receipts import verify
from receipts.sealing import merkle, notes, tiles
from receipts.sealing.keys import parse_keys
from receipts.sealing.merkle import Node, Tree, consistency_proof, inclusion_proof, leaf_hash
from receipts.sealing.notes import COSIGNATURE, Head, InvalidNote, InvalidSignature, Note, PublicKey, SigningKey
from tests.receipts import second_verifier as second

#: The eight entries that implementations of RFC 6962 share as a test tree, and the roots of its states.
ENTRIES = [
    bytes.fromhex(one)
    for one in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
#: Proofs of that tree: (leaf, size) or (older size, size), and the hashes.
INCLUSION = {
    (0, 1): [],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
}
CONSISTENCY = {
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
}

NOTE = (
    "This is an example message.\n\n"
    "\u2014 example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72"
    "IneyaQM=\n"
)
NOTE_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
CHECKPOINT = (
    "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
    "\u2014 example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGz"
    "Gku9nTo+zyWE+xeMcTOAYQ8=\n"
    "\u2014 witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin"
    "1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
)
#: A published key pair of Go's note package, and what it signs.
GO_KEY = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
GO_TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
GO_LINE = (
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
)


def grown(entries):
    """Return a tree of these entries, and all of its nodes."""
    tree, nodes = Tree(), {}
    for position, entry in enumerate(entries):
        for level, one in enumerate(tree.append(leaf_hash(entry))):
            nodes[Node(level, position >> level)] = one
    return tree, lambda wanted: {node: nodes[node] for node in wanted}


@pytest.mark.parametrize("size", range(9))
def test_the_roots_are_those_of_the_shared_test_tree(size):
    tree, _ = grown(ENTRIES[:size])

    assert tree.root.hex() == second.mth(ENTRIES[:size]).hex() == ROOTS[size]
    assert verify.root_of([leaf_hash(one) for one in ENTRIES[:size]]).hex() == ROOTS[size]


@pytest.mark.parametrize(("place", "hashes"), INCLUSION.items())
def test_inclusion_proofs_are_those_of_the_shared_test_tree(place, hashes):
    index, size = place
    _, read = grown(ENTRIES[:size])

    assert [one.hex() for one in inclusion_proof(index, size, read)] == hashes


@pytest.mark.parametrize(("sizes", "hashes"), CONSISTENCY.items())
def test_consistency_proofs_are_those_of_the_shared_test_tree(sizes, hashes):
    old, size = sizes
    _, read = grown(ENTRIES[:size])

    assert [one.hex() for one in consistency_proof(old, size, read)] == hashes


@given(st.integers(1, 300), st.data())
def test_both_verifiers_agree_on_every_proof_of_trees_of_any_size(size, data):
    entries = [number.to_bytes(2, "big") for number in range(size)]
    index, old = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    tree, read = grown(entries)

    path = inclusion_proof(index, size, read)

    assert path == second.path(index, entries)
    assert consistency_proof(old, size, read) == second.proof(old, entries)
    assert tree.root == second.mth(entries)
    leaf = leaf_hash(entries[index])
    assert (
        verify.root_from_inclusion(index, size, leaf, path) == second.root_along(index, size, leaf, path) == tree.root
    )


@given(st.integers(1, 40), st.data())
def test_both_verifiers_refuse_a_proof_in_which_anything_is_changed(size, data):
    entries = [number.to_bytes(2, "big") for number in range(size)]
    index = data.draw(st.integers(0, size - 1))
    tree, read = grown(entries)
    path, leaf = inclusion_proof(index, size, read), leaf_hash(entries[index])
    way = data.draw(st.sampled_from(["leaf", "index", "longer", "shorter", "hash"]))
    if way == "leaf":
        leaf = leaf_hash(b"other")
    elif way == "index":
        index = data.draw(st.integers(0, size + 3).filter(lambda one: one != index))
    elif way == "longer":
        path = [*path, leaf]
    elif not path:
        return
    elif way == "shorter":
        path = path[:-1]
    else:
        at = data.draw(st.integers(0, len(path) - 1))
        path = [*path[:at], hashlib.sha256(path[at]).digest(), *path[at + 1 :]]

    try:
        found = verify.root_from_inclusion(index, size, leaf, path)
    except verify.Wrong:
        found = None

    assert found != tree.root
    assert index >= size or second.root_along(index, size, leaf, path) != tree.root


def test_a_proof_reads_a_logarithm_of_the_nodes():
    reads = []

    def read(wanted):
        reads.extend(wanted)
        return dict.fromkeys(wanted, bytes(32))

    inclusion_proof(123_456, 1_000_000, read)
    consistency_proof(123_456, 1_000_000, read)

    # Twenty levels, and for the unfinished right edge as many peaks again.
    assert len(reads) <= 2 * (20 + 20)


def test_no_proof_of_what_is_not_in_the_tree():
    _, read = grown(ENTRIES)

    with pytest.raises(ValueError, match="no leaf 8"):
        inclusion_proof(8, 8, read)
    with pytest.raises(ValueError, match="no older state of 9"):
        consistency_proof(9, 8, read)


# Notes.


def test_the_example_of_signed_note_is_verified():
    note, key = Note.parse(NOTE), PublicKey.parse(NOTE_KEY)

    assert note.signers([key]) == [key]
    assert (str(note), str(key)) == (NOTE, NOTE_KEY)
    assert second.has_signed(NOTE, NOTE_KEY)


def test_a_text_that_was_changed_is_refused_by_both():
    changed = NOTE.replace("message", "massage")

    with pytest.raises(InvalidSignature):
        Note.parse(changed).signers([PublicKey.parse(NOTE_KEY)])
    assert not second.has_signed(changed, NOTE_KEY)


def test_a_key_signs_what_go_s_note_package_signs():
    key = SigningKey.parse(GO_KEY)

    assert str(key.sign(GO_TEXT)) == GO_LINE
    assert key.export() == GO_KEY
    assert second.has_signed(f"{GO_TEXT}\n{GO_LINE}\n", str(key.public))
    assert GO_KEY not in repr(key)


def test_the_example_of_tlog_checkpoint_is_read_and_written():
    note = Note.parse(CHECKPOINT)

    head = Head.parse(note.text)

    assert (head.origin, head.size) == ("example.com/behind-the-sofa", 20852163)
    assert str(head) == note.text
    assert str(note) == CHECKPOINT
    read = verify.read_checkpoint(CHECKPOINT)
    assert (read.text, read.size, read.root) == (note.text, head.size, head.root)


def test_the_cosignature_of_the_example_has_the_time_that_the_document_names():
    line = Note.parse(CHECKPOINT).signatures[1]

    assert struct.unpack(">Q", line.signature[:8]) == (1679315147,)
    assert notes.cosigned(Note.parse(CHECKPOINT).text, 1679315147).decode() == (
        "cosignature/v1\ntime 1679315147\nexample.com/behind-the-sofa\n20852163\n"
        "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    )


def cosigned_by_a_witness(text, name="witness.example/w", time=1_700_000_000):
    """Return a witness's verifier key and its line for a checkpoint."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
    key = PublicKey(name, COSIGNATURE, private.public_key().public_bytes_raw())
    signature = struct.pack(">Q", time) + private.sign(notes.cosigned(text, time))
    return key, notes.SignatureLine(name, key.id, signature)


def test_a_cosignature_is_verified_by_all_three():
    text = Note.parse(CHECKPOINT).text
    key, line = cosigned_by_a_witness(text)
    note = Note(text, (line,))

    assert note.signers([key]) == [key]
    assert second.has_signed(str(note), str(key))
    mine = verify.Key(key.name, key.id, key.kind, key.public)
    assert verify.signers(verify.read_checkpoint(str(note)), [mine]) == [key.name]
    with pytest.raises(InvalidSignature):
        Note(text.replace("2085", "2086"), (line,)).signers([key])


def test_a_signature_of_an_unknown_key_is_ignored_even_of_the_same_name():
    other = SigningKey.generate("example.com/foo")
    note = Note.parse(NOTE)

    assert Note(note.text, (*note.signatures, other.sign("other text\n"))).signers([PublicKey.parse(NOTE_KEY)])
    assert note.signers([other.public]) == []


@pytest.mark.parametrize(
    "text",
    [
        "no blank line\n",
        "tab\there\n\n",
        "text\n\nno signature\n",
        "text\n\n\u2014 name AAAA\n",
        "text\n\n\u2014 name not*base64\n",
        "text\n\n\u2014 name Uw2QOkn8srU=",
        "x" * 200_000,
    ],
)
def test_what_is_no_note_is_refused(text):
    with pytest.raises(InvalidNote):
        Note.parse(text)


@pytest.mark.parametrize(
    "text", ["o\n01\n" + "A" * 43 + "=\n", "o\n1\nAAAA\n", "\n1\n" + "A" * 43 + "=\n", "o\n-1\nx\n"]
)
def test_what_is_no_checkpoint_is_refused(text):
    with pytest.raises(InvalidNote):
        Head.parse(text)


@pytest.mark.parametrize(
    "key", ["name", "na me+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k", NOTE_KEY.replace("530d", "530e")]
)
def test_what_is_no_key_is_refused(key):
    with pytest.raises(InvalidNote):
        PublicKey.parse(key)


def test_a_broken_private_key_is_refused_without_being_shown():
    secret = GO_KEY[-20:]

    with pytest.raises(InvalidNote) as refused:
        parse_keys(GO_KEY.replace("c74f20a3", "00000000"))

    assert secret not in str(refused.value)


def test_a_key_file_has_signing_keys_retired_ones_and_witnesses():
    witness, _ = cosigned_by_a_witness("x\n")

    keys = parse_keys(f"# keys\n{GO_KEY}\n\n{NOTE_KEY} {witness}\n")

    assert [key.name for key in keys.signing] == ["PeterNeumann"]
    assert [key.name for key in keys.own] == ["PeterNeumann", "example.com/foo"]
    assert [key.name for key in keys.witnesses] == ["witness.example/w"]


# Tiles.


@pytest.mark.parametrize(("number", "path"), [(0, "000"), (273, "273"), (1234067, "x001/x234/067"), (1000, "x001/000")])
def test_a_tile_stands_where_tlog_tiles_says(number, path):
    assert tiles.number_path(number) == verify.tile_path(number) == path


def test_a_tree_of_70000_leaves_has_the_tiles_that_the_document_counts():
    found = {level: divmod(count, tiles.WIDTH) for level, count in tiles.tile_levels(70_000)}

    assert found == {0: (273, 112), 1: (1, 17), 2: (0, 1)}
    assert dict(tiles.tile_levels(256)) == {0: 256, 1: 1}


# The verifier as a program.


def sealed(tmp_path, receipt=None):
    """Write a proof of one receipt among three, and its key; return both files."""
    receipt = receipt or {
        "actor": "ann",
        "audit": [],
        "change_id": "CHG-1",
        "created_at": "2026-01-31T08:00:00.000000Z",
        "kind": "cancel",
        "reason": "",
        "targets": [{"id": 1, "qty": 10, "revision": 4}],
        "tenant": "acme",
        "version": 2,
    }
    receipt = {"digest": verify.recomputed(receipt)} | receipt
    text = json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    entries = [b"one", hashlib.sha256(text).digest(), b"three"]
    tree, read = grown(entries)
    key = SigningKey.generate("example.com/log")
    head = str(Head("example.com/log", 3, tree.root))
    note = Note(head, (key.sign(head),))
    proof = notes.format_proof(index=1, hashes=inclusion_proof(1, 3, read), checkpoint=str(note), extra=text)
    (tmp_path / "x.tlog-proof").write_text(proof, encoding="utf-8")
    (tmp_path / "x.vkey").write_text(f"# of the log\n{key.public}\n", encoding="utf-8")
    return proof, str(key.public)


def run(tmp_path, *arguments):
    """Run the verifier as a program of its own."""
    command = [sys.executable, "-I", verify.__file__, *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_a_proof_is_verified_by_the_program_and_by_the_second_verifier(tmp_path):
    proof, key = sealed(tmp_path)

    done = run(tmp_path, "x.tlog-proof", "--key", "x.vkey", "--print")

    assert (done.returncode, done.stderr) == (0, "")
    assert "CHG-1: sealed as leaf 1 of 3 in example.com/log, signed by example.com/log" in done.stdout
    assert '"actor": "ann"' in done.stdout
    assert second.is_sealed(proof, key)


def swap_actor(proof):
    rows = proof.split("\n")
    extra = base64.b64decode(rows[1].split(" ")[1]).replace(b'"ann"', b'"bob"')
    return "\n".join([rows[0], f"extra {base64.b64encode(extra).decode()}", *rows[2:]])


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (swap_actor, 1, "not in this log"),
        (lambda proof: proof.replace("index 1", "index 0"), 1, "not in this log"),
        (lambda proof: proof.replace("index 1", "index 7"), 1, "no leaf 7"),
        (lambda proof: proof.replace("\n3\n", "\n4\n"), 1, "does not fit"),
        (lambda proof: proof[: proof.index("\u2014")], 1, "signed by none"),
        (lambda proof: proof.replace("index 1", "index x"), 2, "no index"),
        (lambda proof: proof.replace("extra", "other"), 2, "no proof"),
    ],
)
def test_a_proof_that_was_changed_does_not_verify(tmp_path, change, code, said):
    proof, key = sealed(tmp_path)
    changed = change(proof)
    (tmp_path / "x.tlog-proof").write_text(changed, encoding="utf-8")

    done = run(tmp_path, "x.tlog-proof", "--key", "x.vkey")

    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done
    if code == 1:
        assert not second.is_sealed(changed, key)


def test_a_checkpoint_and_its_witnesses_are_verified(tmp_path):
    proof, _ = sealed(tmp_path)
    note = proof.split("\n\n", 1)[1]
    witness, line = cosigned_by_a_witness(Note.parse(note).text)
    (tmp_path / "w.vkey").write_text(f"{witness}\n")
    (tmp_path / "plain").write_text(note, encoding="utf-8")
    (tmp_path / "cosigned").write_text(f"{note}{line}\n", encoding="utf-8")

    plain = run(tmp_path, "plain", "--key", "x.vkey", "--witness-key", "w.vkey")
    cosigned = run(tmp_path, "cosigned", "--key", "x.vkey", "--witness-key", "w.vkey")

    assert (plain.returncode, "cosigned by none" in plain.stdout) == (1, True)
    assert (cosigned.returncode, "cosigned by witness.example/w" in cosigned.stdout) == (0, True)


def test_the_verifier_is_one_file_and_imports_nothing_of_kwit(tmp_path):
    copy = tmp_path / "verify.py"
    copy.write_text(Path(verify.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    sealed(tmp_path)
    command = [sys.executable, "-I", str(copy), "x.tlog-proof", "--key", "x.vkey"]

    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert "import django" not in copy.read_text(encoding="utf-8")
    assert merkle.EMPTY_ROOT.hex() == ROOTS[0]
