#!/usr/bin/env python3
"""
Verify receipts, sealed receipts and their log, offline. One file: no Django, no database, no Kwit, no network.

``verify.py FILE`` (``-`` for stdin) takes what ``manage.py inspect_change CHANGE_ID --json`` has printed, or a list of
such objects, and recomputes the digests (version 1); that needs Python only.
``verify.py FILE --key FILE`` takes a ``.tlog-proof`` or a checkpoint, and ``verify.py --tiles DIRECTORY --key FILE`` a
published log; these need ``cryptography``. ``--since FILE``: the log must begin with that of this older checkpoint.
``--witness-key FILE``: one of these witnesses must have cosigned.
Exit: 0 all of it fits, 1 something does not, 2 a file is no such thing.

What is hashed: JSON in UTF-8 with sorted keys, no blanks, characters outside ASCII as themselves. Version 1: change_id,
kind, targets (sorted by id), tenant, version. Version 2: all of a receipt, and its audit rows. A leaf of the log is
SHA-256(0x00 || SHA-256(version 2)), a node SHA-256(0x01 || left || right) (RFC 6962, section 2.1). Signatures are those
of C2SP signed-note, tlog-checkpoint and tlog-cosignature, proofs those of tlog-proof, logs those of tlog-tiles.
"""

import argparse
import base64
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 1
PROOF_HEAD = "c2sp.org/tlog-proof@v1"
ED25519, COSIGNATURE = 1, 4
TILE_WIDTH = 256


class Wrong(Exception):
    """Something does not fit: exit code 1."""


class Unreadable(Exception):
    """A file is no such thing: exit code 2."""


def sha256(data: bytes) -> bytes:
    """Return the hash."""
    return hashlib.sha256(data).digest()


# Receipts as JSON.


def recomputed(receipt: dict[str, Any]) -> str:
    """Return the digest of a receipt's content, version 1."""
    content = {key: receipt[key] for key in ("change_id", "kind", "tenant")} | {"version": VERSION}
    content["targets"] = sorted(receipt["targets"], key=lambda row: row["id"])
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def verify_receipts(text: str) -> int:
    """Verify every receipt of a JSON file."""
    try:
        content = json.loads(text)
        receipts = content if isinstance(content, list) else [content]
        verdicts = [(receipt["change_id"], recomputed(receipt) == receipt["digest"]) for receipt in receipts]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"no receipt as inspect_change prints it: {error!r}") from error
    for change_id, holds in verdicts:
        say(f"{change_id}: {'digest holds' if holds else 'DIGEST DIFFERS'}")
    return 0 if all(holds for _, holds in verdicts) else 1


# Notes, checkpoints, keys.


class Key(NamedTuple):
    """A verifier key."""

    name: str
    id: bytes
    kind: int
    public: bytes


class Checkpoint(NamedTuple):
    """A parsed checkpoint."""

    text: str
    origin: str
    size: int
    root: bytes
    signatures: list[tuple[str, bytes, bytes]]


def decoded(text: str) -> bytes:
    """Return the bytes of base64 text."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Unreadable(f"{text[:40]!r} is not base64") from error


def read_keys(name: str) -> list[Key]:
    """Read verifier keys, one a line: ``<name>+<key ID>+<base64 of type and key>``."""
    keys = []
    for line in read_text(name).splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.strip().split("+", 2)
        if len(parts) != 3 or parts[0] == "PRIVATE":
            raise Unreadable(f"{name}: {line[:30]!r}… is no verifier key")
        data = decoded(parts[2])
        key_id = sha256(parts[0].encode() + b"\n" + data)[:4]
        if len(data) != 33 or data[0] not in (ED25519, COSIGNATURE) or key_id.hex() != parts[1]:
            raise Unreadable(f"{name}: the key of {parts[0]} is no Ed25519 key with its own ID")
        keys.append(Key(parts[0], key_id, data[0], data[1:]))
    if not keys:
        raise Unreadable(f"{name}: no key")
    return keys


def read_checkpoint(note: str) -> Checkpoint:
    """Read a signed checkpoint."""
    text, blank, lines = note.rpartition("\n\n")
    rows = text.split("\n")
    if not blank or len(rows) < 3 or not rows[0] or not (rows[1].isascii() and rows[1].isdigit()):
        raise Unreadable("no checkpoint: an origin, a size, a root, a blank line, and signatures")
    signatures = []
    for line in lines.splitlines():
        dash, _, rest = line.partition(" ")
        name, _, signature = rest.partition(" ")
        if dash != "\u2014" or not name:
            raise Unreadable(f"{line[:40]!r} is no signature")
        data = decoded(signature)
        signatures.append((name, data[:4], data[4:]))
    return Checkpoint(text + "\n", rows[0], int(rows[1]), decoded(rows[2]), signatures)


def signers(checkpoint: Checkpoint, keys: list[Key]) -> list[str]:
    """Return the names of the keys that have signed; a signature of theirs that does not fit is wrong."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise Unreadable(f"signatures need the package 'cryptography': {error}") from error
    known = {(key.name, key.id): key for key in keys}
    found = []
    for name, key_id, signature in checkpoint.signatures:
        key = known.get((name, key_id))
        if key is None:
            continue
        message = checkpoint.text.encode()
        if key.kind == COSIGNATURE:
            if len(signature) != 72:
                raise Wrong(f"the cosignature of {name} has {len(signature)} bytes")
            (time,), signature = struct.unpack(">Q", signature[:8]), signature[8:]
            message = f"cosignature/v1\ntime {time}\n".encode() + message
        try:
            Ed25519PublicKey.from_public_bytes(key.public).verify(signature, message)
        except InvalidSignature:
            raise Wrong(f"the signature of {name} does not fit the checkpoint") from None
        found.append(name)
    return found


def require_signed(checkpoint: Checkpoint, keys: list[Key], witnesses: list[Key]) -> str:
    """Return who has signed, in words; wrong when none of the keys has, or none of the witnesses."""
    own = signers(checkpoint, [key for key in keys if key.kind == ED25519])
    if not own:
        raise Wrong(f"the checkpoint of {checkpoint.origin} is signed by none of these keys")
    cosigned = signers(checkpoint, [key for key in [*keys, *witnesses] if key.kind == COSIGNATURE])
    if witnesses and not set(cosigned) & {key.name for key in witnesses}:
        raise Wrong(f"the checkpoint of {checkpoint.origin} is cosigned by none of these witnesses")
    names = ", ".join(dict.fromkeys(own))
    return f"signed by {names}" + (f", cosigned by {', '.join(dict.fromkeys(cosigned))}" if cosigned else "")


# The tree.


def root_from_inclusion(index: int, size: int, leaf: bytes, path: list[bytes]) -> bytes:
    """Return the root that an inclusion proof leads to (RFC 9162, section 2.1.3.2)."""
    if index >= size:
        raise Wrong(f"the log has {size} leaves, and no leaf {index}")
    place, last, root = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            raise Wrong("the path is longer than the tree is high")
        if place % 2 or place == last:
            root = sha256(b"\x01" + sibling + root)
            while not place % 2 and place:
                place, last = place >> 1, last >> 1
        else:
            root = sha256(b"\x01" + root + sibling)
        place, last = place >> 1, last >> 1
    if last:
        raise Wrong("the path is shorter than the tree is high")
    return root


def root_of(leaves: list[bytes]) -> bytes:
    """Return the root over leaf hashes."""
    if not leaves:
        return sha256(b"")
    row = leaves
    while len(row) > 1:
        paired = [sha256(b"\x01" + row[at] + row[at + 1]) for at in range(0, len(row) - 1, 2)]
        row = paired + row[len(paired) * 2 :]
    return row[0]


# Proofs.


def verify_proof(text: str, keys: list[Key], witnesses: list[Key], *, is_printed: bool) -> int:
    """Verify a sealed receipt: its content, its place in the log, and who has signed the log."""
    head, blank, note = text.partition("\n\n")
    rows = head.split("\n")[1:]
    if not blank or len(rows) < 2 or not rows[0].startswith("extra ") or not rows[1].startswith("index "):
        raise Unreadable("no proof with a receipt in it")
    content, index = decoded(rows[0].removeprefix("extra ")), rows[1].removeprefix("index ")
    if not (index.isascii() and index.isdigit()):
        raise Unreadable(f"{index[:20]!r} is no index")
    checkpoint = read_checkpoint(note)
    signed = require_signed(checkpoint, keys, witnesses)
    leaf = sha256(b"\x00" + sha256(content))
    root = root_from_inclusion(int(index), checkpoint.size, leaf, [decoded(row) for row in rows[2:]])
    if root != checkpoint.root:
        raise Wrong("the receipt is not in this log: the path does not lead to the root that was signed")
    receipt = read_receipt(content)
    if recomputed(receipt) != receipt["digest"]:
        raise Wrong(f"{receipt['change_id']}: was sealed with a digest that is not that of its content")
    say(f"{receipt['change_id']}: sealed as leaf {index} of {checkpoint.size} in {checkpoint.origin}, {signed}")
    if is_printed:
        say(json.dumps(receipt, indent=1, ensure_ascii=False, sort_keys=True))
    return 0


def read_receipt(content: bytes) -> dict[str, Any]:
    """Return the sealed receipt; it must be in the canonical form, or two readers could read it differently."""
    try:
        receipt = json.loads(content.decode("utf-8", "surrogatepass"))
        again = json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        is_canonical = again.encode("utf-8", "surrogatepass") == content and receipt["version"] == 2
        if missing := {"change_id", "digest", "kind", "targets", "tenant"} - set(receipt):
            raise KeyError(*missing)
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"the proof has no receipt in it: {error!r}") from error
    if not is_canonical:
        raise Wrong("the receipt in the proof is not in the canonical form, version 2")
    return receipt  # type: ignore[no-any-return]


# Published logs.


def tile_path(number: int) -> str:
    """Return the path of a tile: 1234067 is x001/x234/067."""
    digits = f"{number:03d}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    parts = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    return "/".join([*(f"x{part}" for part in parts[:-1]), parts[-1]])


def read_leaves(folder: Path, size: int) -> list[bytes]:
    """Return the leaf hashes of a published log; each entry must be that of its leaf."""
    leaves: list[bytes] = []
    for number in range(-(-size // TILE_WIDTH)):
        width = min(TILE_WIDTH, size - number * TILE_WIDTH)
        suffix = "" if width == TILE_WIDTH else f".p/{width}"
        try:
            hashes = (folder / f"tile/0/{tile_path(number)}{suffix}").read_bytes()
            entries = (folder / f"tile/entries/{tile_path(number)}{suffix}").read_bytes()
        except OSError as error:
            raise Wrong(f"the log is not whole: {error}") from error
        for place in range(width):
            length = int.from_bytes(entries[:2], "big")
            entry, entries = entries[2 : 2 + length], entries[2 + length :]
            leaves.append(hashes[place * 32 : place * 32 + 32])
            if sha256(b"\x00" + entry) != leaves[-1]:
                raise Wrong(f"entry {number * TILE_WIDTH + place} is not that of its leaf")
    return leaves


def verify_tiles(folder: Path, keys: list[Key], witnesses: list[Key], since: str | None) -> int:
    """Verify a published log: its root, who has signed it, and that it begins with an older one."""
    checkpoint = read_checkpoint(read_text(str(folder / "checkpoint")))
    signed = require_signed(checkpoint, keys, witnesses)
    leaves = read_leaves(folder, checkpoint.size)
    if root_of(leaves) != checkpoint.root:
        raise Wrong("the root of the published leaves is not the one that was signed")
    say(f"{checkpoint.origin}: {checkpoint.size} leaves, {signed}")
    if since is not None:
        old = read_checkpoint(read_text(since))
        require_signed(old, keys, [])
        if old.origin != checkpoint.origin:
            raise Wrong(f"{since} is a checkpoint of {old.origin}, which is another log")
        if old.size > checkpoint.size:
            raise Wrong(f"{since} has {old.size} leaves, the log only {checkpoint.size}: it was cut back")
        if root_of(leaves[: old.size]) != old.root:
            raise Wrong(f"the log does not begin with the {old.size} leaves of {since}")
        say(f"it begins with the {old.size} leaves of {since}")
    return 0


# The command line.


def say(text: str) -> None:
    """Print a line; what the terminal cannot show, or would act on, is escaped."""
    shown = "".join(one if one.isprintable() or one == "\n" else f"\\u{ord(one):04x}" for one in text)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def read_text(name: str) -> str:
    """Read a file or stdin."""
    try:
        with sys.stdin if name == "-" else open(name, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeError) as error:
        raise Unreadable(f"{name} cannot be read: {error}") from error


def verify_file(given: argparse.Namespace, keys: list[Key], witnesses: list[Key]) -> int:
    """Verify one file, whatever it is."""
    text = read_text(given.file)
    if text.lstrip()[:1] in ("{", "["):
        return verify_receipts(text)
    if not keys:
        raise Unreadable("a proof or a checkpoint needs --key")
    if text.startswith(PROOF_HEAD + "\n"):
        return verify_proof(text, keys, witnesses, is_printed=given.is_printed)
    checkpoint = read_checkpoint(text)
    say(f"{checkpoint.origin}: checkpoint of {checkpoint.size} leaves, {require_signed(checkpoint, keys, witnesses)}")
    return 0


def main(arguments: list[str]) -> int:
    """Verify what the command line names."""
    parser = argparse.ArgumentParser(prog="verify", description="Verify receipts, sealed receipts and their log.")
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="receipts as JSON, a proof, a checkpoint")
    parser.add_argument("--key", metavar="FILE", help="verifier keys of the log")
    parser.add_argument(
        "--witness-key", metavar="FILE", help="verifier keys of witnesses, one of whom must have cosigned"
    )
    parser.add_argument("--tiles", metavar="DIRECTORY", help="a published log instead of a file")
    parser.add_argument("--since", metavar="FILE", help="with --tiles: an older checkpoint of the same log")
    parser.add_argument("--print", action="store_true", dest="is_printed", help="print the sealed receipt")
    given = parser.parse_args(arguments)
    try:
        keys = read_keys(given.key) if given.key else []
        witnesses = read_keys(given.witness_key) if given.witness_key else []
        if given.tiles:
            return verify_tiles(Path(given.tiles), keys, witnesses, given.since)
        return verify_file(given, keys, witnesses)
    except Wrong as error:
        say(f"WRONG: {error}")
        return 1
    except Unreadable as error:
        sys.stderr.write(f"{given.tiles or given.file}: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
