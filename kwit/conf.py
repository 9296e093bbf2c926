"""Every setting of ``settings.KWIT``: its type, its default and its unit."""

from dataclasses import dataclass, field, fields
from hashlib import sha256

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

#: Characters of METRICS_TOKEN at least: what is shorter could be guessed.
METRICS_TOKEN_CHARS_MIN = 20


@dataclass(frozen=True, kw_only=True)
class KwitSettings:
    """What ``settings.KWIT`` says."""

    #: A secret that opens /metrics besides tokens and sessions with the permission; empty: none does.
    METRICS_TOKEN: str = field(default="", repr=False)
    #: Whether /metrics answers anybody: only where the network lets nobody else near.
    METRICS_OPEN: bool = False

    @property
    def metrics_digest(self) -> str:
        """What the secret's hash is; empty when there is none."""
        return sha256(self.METRICS_TOKEN.encode()).hexdigest() if self.METRICS_TOKEN else ""


def kwit_settings() -> KwitSettings:
    """Read ``settings.KWIT``. Raises: ImproperlyConfigured for an unknown name or a value of another type."""
    given = getattr(settings, "KWIT", {})
    known = {one.name: one.type for one in fields(KwitSettings)}
    if unknown := sorted(set(given) - set(known)):
        raise ImproperlyConfigured(f"KWIT has no setting {', '.join(unknown)}; it knows {', '.join(sorted(known))}")
    for name, value in given.items():
        if type(value) is not known[name]:
            # Not the value: it may be the secret itself.
            raise ImproperlyConfigured(f"KWIT[{name!r}] must be a {known[name].__name__}")  # type: ignore[union-attr]
    found = KwitSettings(**given)
    if found.METRICS_TOKEN and len(found.METRICS_TOKEN) < METRICS_TOKEN_CHARS_MIN:
        raise ImproperlyConfigured(f"KWIT['METRICS_TOKEN'] must have {METRICS_TOKEN_CHARS_MIN} characters or more")
    return found
