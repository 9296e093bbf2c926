"""The keys that this site knows: its own that sign, and verifier keys of retired ones and of witnesses."""

from dataclasses import dataclass
from pathlib import Path

from ..conf import ReceiptsSettings, load_settings
from .notes import ED25519, PRIVATE, InvalidNote, PublicKey, SigningKey

#: The origin of a log that has neither a name nor a key.
UNNAMED = "unnamed.invalid/receipts"


@dataclass(frozen=True)
class Keys:
    """What signs, and what is known."""

    signing: tuple[SigningKey, ...] = ()
    known: tuple[PublicKey, ...] = ()

    @property
    def own(self) -> list[PublicKey]:
        """The keys of this log, retired ones too."""
        return [key for key in self.known if key.kind == ED25519]

    @property
    def witnesses(self) -> list[PublicKey]:
        """The keys of witnesses."""
        return [key for key in self.known if key.kind != ED25519]


def parse_keys(text: str) -> Keys:
    """Read keys, one a line or separated by blanks; a line that begins with # is a comment. Raises: InvalidNote."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = [word for line in lines for word in line.split()]
    signing = tuple(SigningKey.parse(word) for word in words if word.startswith(PRIVATE))
    public = (PublicKey.parse(word) for word in words if not word.startswith(PRIVATE))
    return Keys(signing, tuple(dict.fromkeys([*(key.public for key in signing), *public])))


def load_keys(settings: ReceiptsSettings | None = None) -> Keys:
    """Read the keys that the settings name. Raises: InvalidNote, also for a file that cannot be read."""
    settings = settings or load_settings()
    text = settings.log_keys
    if settings.log_key_file:
        try:
            text = f"{Path(settings.log_key_file).read_text(encoding='utf-8')}\n{text}"
        except (OSError, UnicodeError) as error:
            raise InvalidNote(f"the key file {settings.log_key_file} cannot be read: {error}") from error
    return parse_keys(text)


def origin_of(keys: Keys, settings: ReceiptsSettings | None = None) -> str:
    """Return what names the log."""
    settings = settings or load_settings()
    return settings.log_origin or (keys.signing[0].name if keys.signing else UNNAMED)
