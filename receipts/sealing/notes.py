"""
Signed notes, checkpoints, cosignatures and proofs as text: C2SP signed-note, tlog-checkpoint, tlog-cosignature and
tlog-proof, with Ed25519. ``cryptography`` is imported when something is signed or verified, and not before.
"""

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..errors import ReceiptsError

#: Signature types of signed-note: Ed25519 over the text, and a cosignature with a timestamp.
ED25519, COSIGNATURE = 1, 4
KEY_BYTES, SIGNATURE_BYTES, KEY_ID_BYTES = 32, 64, 4
#: Go's form of a private key, which other tools read, too: PRIVATE+KEY+<name>+<key ID>+<base64 of type and seed>.
PRIVATE = "PRIVATE+KEY+"
PROOF_HEAD = "c2sp.org/tlog-proof@v1"
DASH = "\u2014 "
#: Characters of a note from elsewhere; a signature has about 200.
NOTE_CHARS_MAX = 100_000


class InvalidNote(ReceiptsError):
    """A text is no signed note, checkpoint or key as the specifications have them."""


class InvalidSignature(InvalidNote):
    """A signature by a known key does not fit the text."""


def key_id(name: str, kind: int, public: bytes) -> bytes:
    """Return what stands for a key in a signature."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public).digest()[:KEY_ID_BYTES]


def check_name(name: str) -> str:
    """Return a name that a key may have. Raises: InvalidNote."""
    if not name or "+" in name or any(letter.isspace() for letter in name) or not name.isprintable():
        raise InvalidNote(f"{name!r} cannot name a key: no blanks, no +, not empty")
    return name


def decode(text: str, *, size: int | None = None) -> bytes:
    """Return the bytes of base64 text. Raises: InvalidNote."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidNote(f"{text[:40]!r} is not base64") from error
    if size is not None and len(data) != size:
        raise InvalidNote(f"{text[:40]!r} has {len(data)} bytes instead of {size}")
    return data


def encode(data: bytes) -> str:
    """Return bytes as base64 text."""
    return base64.b64encode(data).decode()


class SignatureLine(NamedTuple):
    """One signature of a note."""

    name: str
    key_id: bytes
    signature: bytes

    def __str__(self) -> str:
        return f"{DASH}{self.name} {encode(self.key_id + self.signature)}"


@dataclass(frozen=True)
class PublicKey:
    """A verifier key: a log's own (type 1) or a witness's (type 4)."""

    name: str
    kind: int
    public: bytes

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Read ``<name>+<hexadecimal key ID>+<base64 of type and key>``. Raises: InvalidNote."""
        parts = text.strip().split("+", 2)
        if len(parts) != 3:
            raise InvalidNote("a verifier key has three parts: name+ID+key")
        name, given_id, data = check_name(parts[0]), parts[1], decode(parts[2])
        if len(data) != 1 + KEY_BYTES or data[0] not in (ED25519, COSIGNATURE):
            raise InvalidNote(f"the key of {name} is neither an Ed25519 key nor that of a witness")
        key = cls(name, data[0], data[1:])
        if key.id.hex() != given_id:
            raise InvalidNote(f"the key of {name} has the ID {key.id.hex()}, not {given_id}")
        return key

    @cached_property
    def id(self) -> bytes:
        """What stands for it in a signature."""
        return key_id(self.name, self.kind, self.public)

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{encode(bytes([self.kind]) + self.public)}"

    def verify(self, text: str, signature: bytes) -> None:
        """Check a signature by this key over a note's text. Raises: InvalidSignature."""
        from cryptography.exceptions import InvalidSignature as Refused
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        message, given = text.encode(), signature
        if self.kind == COSIGNATURE:
            if len(signature) != 8 + SIGNATURE_BYTES:
                raise InvalidSignature(f"the cosignature of {self.name} has {len(signature)} bytes")
            (time,), given = struct.unpack(">Q", signature[:8]), signature[8:]
            message = cosigned(text, time)
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(given, message)
        except Refused:
            raise InvalidSignature(f"the signature of {self.name} ({self.id.hex()}) does not fit the text") from None


def cosigned(text: str, time: int) -> bytes:
    """Return what a witness signs."""
    return f"cosignature/v1\ntime {time}\n{text}".encode()


@dataclass(frozen=True)
class SigningKey:
    """A private key of a log; its ``repr`` does not show the seed."""

    name: str
    seed: "Seed"

    @classmethod
    def parse(cls, text: str) -> "SigningKey":
        """Read a private key. Raises: InvalidNote, which never shows it."""
        parts = text.strip().removeprefix(PRIVATE).split("+", 2)
        if not text.strip().startswith(PRIVATE) or len(parts) != 3:
            raise InvalidNote("a private key has the form PRIVATE+KEY+name+ID+key")
        try:
            data = base64.b64decode(parts[2], validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if len(data) != 1 + KEY_BYTES or data[0] != ED25519:
            raise InvalidNote(f"the private key of {parts[0]} is not an Ed25519 key")
        key = cls(check_name(parts[0]), Seed(data[1:]))
        if key.public.id.hex() != parts[1]:
            raise InvalidNote(f"the private key of {key.name} has the ID {key.public.id.hex()}, not {parts[1]}")
        return key

    @classmethod
    def generate(cls, name: str) -> "SigningKey":
        """Return a new key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(check_name(name), Seed(Ed25519PrivateKey.generate().private_bytes_raw()))

    @cached_property
    def public(self) -> PublicKey:
        """Its public half."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        private = Ed25519PrivateKey.from_private_bytes(self.seed)
        return PublicKey(self.name, ED25519, private.public_key().public_bytes_raw())

    def export(self) -> str:
        """Return it as text, with the secret."""
        return f"{PRIVATE}{self.name}+{self.public.id.hex()}+{encode(bytes([ED25519]) + self.seed)}"

    def sign(self, text: str) -> SignatureLine:
        """Sign a note's text."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        private = Ed25519PrivateKey.from_private_bytes(self.seed)
        return SignatureLine(self.name, self.public.id, private.sign(text.encode()))


class Seed(bytes):
    """The secret bytes of a key, which no traceback shows."""

    def __repr__(self) -> str:
        return "<secret>"


@dataclass(frozen=True)
class Note:
    """A text and its signatures."""

    text: str
    signatures: tuple[SignatureLine, ...] = ()

    @classmethod
    def parse(cls, note: str) -> "Note":
        """Read a signed note; one without signatures ends after its blank line. Raises: InvalidNote."""
        if len(note) > NOTE_CHARS_MAX:
            raise InvalidNote(f"a note has more than {NOTE_CHARS_MAX:,} characters")
        if any(letter < " " and letter != "\n" for letter in note):
            raise InvalidNote("a note has a control character")
        text, blank, lines = note.rpartition("\n\n")
        if not blank or not text or (lines and not lines.endswith("\n")):
            raise InvalidNote("a note is a text, a blank line, and lines of signatures")
        return cls(text + "\n", tuple(parse_signature(line) for line in lines.splitlines()))

    def __str__(self) -> str:
        return f"{self.text}\n" + "".join(f"{line}\n" for line in self.signatures)

    def signers(self, keys: Iterable[PublicKey]) -> list[PublicKey]:
        """Return the known keys that have signed it. Raises: InvalidSignature for one of theirs that does not fit."""
        known = {(key.name, key.id): key for key in keys}
        found = []
        for line in self.signatures:
            if (key := known.get((line.name, line.key_id))) is not None:
                key.verify(self.text, line.signature)
                found.append(key)
        return found


def parse_signature(line: str) -> SignatureLine:
    """Read one signature line. Raises: InvalidNote."""
    parts = line.removeprefix(DASH).split(" ")
    if not line.startswith(DASH) or len(parts) != 2:
        raise InvalidNote(f"{line[:40]!r} is no signature")
    data = decode(parts[1])
    if len(data) <= KEY_ID_BYTES:
        raise InvalidNote(f"{line[:40]!r} is too short for a signature")
    return SignatureLine(parts[0], data[:KEY_ID_BYTES], data[KEY_ID_BYTES:])


class Head(NamedTuple):
    """What a checkpoint says of a tree."""

    origin: str
    size: int
    root: bytes

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Read a note's text as a checkpoint. Raises: InvalidNote."""
        origin, size, root = [*text.split("\n"), "", ""][:3]
        if not origin or not size.isascii() or not size.isdigit() or str(int(size)) != size:
            raise InvalidNote("a checkpoint has an origin, a size and a root")
        return cls(origin, int(size), decode(root, size=hashlib.sha256().digest_size))

    def __str__(self) -> str:
        return f"{self.origin}\n{self.size}\n{encode(self.root)}\n"


def format_proof(*, index: int, hashes: Sequence[bytes], checkpoint: str, extra: bytes = b"") -> str:
    """Return a ``.tlog-proof``: what was sealed, where it stands in the tree, and the checkpoint."""
    lines = [PROOF_HEAD, *([f"extra {encode(extra)}"] if extra else []), f"index {index}", *map(encode, hashes)]
    return "\n".join(lines) + f"\n\n{checkpoint}"
