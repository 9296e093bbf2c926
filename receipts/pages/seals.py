"""Sealed receipts on the pages: in which checkpoint, the proof as a file, and the mark on paper."""

from dataclasses import dataclass

from django.db import router
from django.utils.formats import date_format, number_format
from django.utils.safestring import SafeString, mark_safe
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from kwit.admin.components import Cell, Fact

from ..models import Change
from ..sealing.log import Seal, get_seal, make_proof, read_entries
from .badges import NOT_SEALED, SEALED

PROOF = "proof"
#: Blank modules around the QR code, on paper that is white anyway.
QR_BORDER = 2


def home() -> str:
    """Return the database that is read."""
    return router.db_for_read(Change)


def find_seal(change_id: str) -> Seal | None:
    """Return how a receipt is sealed; two queries."""
    return get_seal(change_id, home())


def seal_text(seal: Seal | None) -> str:
    """Say in which checkpoint a receipt was sealed first."""
    if seal is None or seal.checkpoint is None:
        return _("not yet sealed")
    return _("in checkpoint %(number)s of %(time)s, as leaf %(leaf)s") % {
        "number": number_format(seal.checkpoint.number, use_l10n=True, force_grouping=True),
        "time": date_format(localtime(seal.checkpoint.created_at), "Y-m-d H:i:s T"),
        "leaf": number_format(seal.position, use_l10n=True, force_grouping=True),
    }


def seal_fact(seal: Seal | None) -> Fact:
    """Return the line of a receipt's head."""
    is_sealed = seal is not None and seal.checkpoint is not None
    if not is_sealed:
        return Fact(name=_("sealed"), cell=Cell(badge=NOT_SEALED))
    return Fact(name=_("sealed"), cell=Cell(badge=SEALED, text=f" {seal_text(seal)}"))


def read_proof(change_id: str) -> str | None:
    """Return the ``.tlog-proof`` of a receipt; None while it is not sealed."""
    return make_proof(change_id, home())


@dataclass(frozen=True)
class Mark:
    """What stands on paper: the hash of the receipt's leaf, as text and as a QR code, and where it is sealed."""

    hash: str
    code: SafeString
    text: str


def make_mark(change_id: str) -> Mark | None:
    """Return the mark of a receipt, sealed or not: the hash is that of its content. None when it is not there."""
    # Imported here: nothing else draws.
    import qrcode
    import qrcode.image.svg

    entry = read_entries([change_id], home()).get(change_id)
    if entry is None:
        return None
    text = entry.leaf_hash.hex()
    image = qrcode.make(text, image_factory=qrcode.image.svg.SvgPathImage, border=QR_BORDER)
    code = image.to_string(encoding="unicode")
    # Drawn of a hexadecimal number: nothing of the receipt's own texts is in it.
    return Mark(text, mark_safe(code), seal_text(find_seal(change_id)))  # noqa: S308
