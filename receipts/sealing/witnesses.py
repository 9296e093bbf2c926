"""
Witnesses: others who have seen that the log only grows, and say so by a cosignature of its checkpoint.

A URL is asked by C2SP tlog-witness (``add-checkpoint``); a file holds a note that somebody has cosigned elsewhere.
Cosignatures of keys that this site does not know are ignored, as the specification demands.
"""

from pathlib import Path

from ..models import Checkpoint, Cosignature
from .keys import Keys
from .log import read_nodes
from .merkle import consistency_proof
from .notes import InvalidNote, Note, encode
from .publishing import HttpRefused, is_url, post, record_handed, was_handed_to


def cosign(checkpoint: Checkpoint, witness: str, *, keys: Keys, alias: str) -> list[str]:
    """
    Get the cosignatures of one witness for a checkpoint and keep them; return the names of those who signed now.

    A URL that has answered for this checkpoint is not asked again.

    Raises: OSError, ValueError, InvalidNote.
    """
    if is_url(witness) and was_handed_to(checkpoint, witness, alias):
        return []
    if is_url(witness):
        lines = ask(checkpoint, witness, alias=alias)
    else:
        note = Note.parse(Path(witness).read_text(encoding="utf-8"))
        if note.text != Note.parse(checkpoint.note).text:
            raise InvalidNote(f"{witness} is not of checkpoint {checkpoint.number}")
        lines = "".join(f"{line}\n" for line in note.signatures)
    note = Note.parse(f"{Note.parse(checkpoint.note).text}\n{lines}")
    known = {(key.name, key.id) for key in note.signers(keys.witnesses)}
    signed = []
    for line in note.signatures:
        if (line.name, line.key_id) in known:
            _, is_new = Cosignature.objects.using(alias).get_or_create(
                checkpoint=checkpoint, name=line.name, key_id=line.key_id.hex(), defaults={"line": str(line)}
            )
            signed += [line.name] if is_new else []
    if not known:
        raise InvalidNote(f"{witness} gave no cosignature by a known key; put its verifier key into the key file")
    record_handed(checkpoint, witness, alias)
    return signed


def ask(checkpoint: Checkpoint, url: str, *, alias: str) -> str:
    """Ask a witness for its signature lines; if it names its last size, prove the growth since then."""
    address = f"{url.rstrip('/')}/add-checkpoint"
    seen = last_seen(checkpoint, alias)
    try:
        return post(address, request_of(checkpoint, seen, alias)).decode()
    except HttpRefused as error:
        if error.code != 409:
            raise
        answer = error.text.strip()
    if not (answer.isascii() and answer.isdigit()) or int(answer) > checkpoint.size:
        raise InvalidNote(f"{url} has seen {answer[:20]!r} leaves, this log has {checkpoint.size}")
    return post(address, request_of(checkpoint, int(answer), alias)).decode()


def last_seen(checkpoint: Checkpoint, alias: str) -> int:
    """Return the size of the newest checkpoint before this one that has a cosignature."""
    before = Cosignature.objects.using(alias).filter(checkpoint__lt=checkpoint.number).order_by("-checkpoint")
    return before.values_list("checkpoint__size", flat=True).first() or 0


def request_of(checkpoint: Checkpoint, old: int, alias: str) -> bytes:
    """Return the body of ``add-checkpoint``."""
    proof = consistency_proof(old, checkpoint.size, lambda nodes: read_nodes(nodes, alias))
    lines = [f"old {old}", *map(encode, proof)]
    return ("\n".join(lines) + f"\n\n{checkpoint.note}").encode()
