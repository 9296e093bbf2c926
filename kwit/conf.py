"""Every setting of ``settings.KWIT``: its type, its default and its unit."""

from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import get_origin, get_type_hints

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

#: Characters of METRICS_TOKEN at least: what is shorter could be guessed.
METRICS_TOKEN_CHARS_MIN = 20
TOKEN_DAYS_MAX = 3650


@dataclass(frozen=True, kw_only=True)
class KwitSettings:
    """What ``settings.KWIT`` says."""

    #: Days after which an API token ends, whatever it was made with; 0: no limit.
    TOKEN_DAYS: int = 365
    #: Whether the strict policy and ``no-store`` are for every page of the site, not for Kwit's pages only.
    STRICT_SITE: bool = False
    #: Origins to which forms may lead besides the site itself, such as the provider of single sign-on.
    FORM_TARGETS: list[str] = field(default_factory=list)
    #: Permissions that ``kwit_groups`` adds to a group: ``{"viewer": ["shop.view_order"]}``.
    GROUPS: dict[str, list[str]] = field(default_factory=dict)
    #: A secret that opens /metrics besides tokens and sessions with the permission; empty: none does.
    METRICS_TOKEN: str = field(default="", repr=False)
    #: Whether /metrics answers without authentication: only for networks that restrict access.
    METRICS_OPEN: bool = False

    @property
    def metrics_digest(self) -> str:
        """What the secret's hash is; empty when there is none."""
        return sha256(self.METRICS_TOKEN.encode()).hexdigest() if self.METRICS_TOKEN else ""


def kwit_settings() -> KwitSettings:
    """Read ``settings.KWIT``. Raises: ImproperlyConfigured for an unknown name or a value of another type."""
    given = getattr(settings, "KWIT", {})
    hints = get_type_hints(KwitSettings)
    known: dict[str, type] = {one.name: get_origin(hints[one.name]) or hints[one.name] for one in fields(KwitSettings)}
    if unknown := sorted(set(given) - set(known)):
        raise ImproperlyConfigured(f"KWIT has no setting {', '.join(unknown)}; it knows {', '.join(sorted(known))}")
    for name, value in given.items():
        if type(value) is not known[name]:
            # Not the value: it may be the secret itself.
            raise ImproperlyConfigured(f"KWIT[{name!r}] must be a {known[name].__name__}")
    found = KwitSettings(**given)
    if not 0 <= found.TOKEN_DAYS <= TOKEN_DAYS_MAX:
        raise ImproperlyConfigured(f"KWIT['TOKEN_DAYS'] must be from 0 to {TOKEN_DAYS_MAX}")
    if found.METRICS_TOKEN and len(found.METRICS_TOKEN) < METRICS_TOKEN_CHARS_MIN:
        raise ImproperlyConfigured(f"KWIT['METRICS_TOKEN'] must have {METRICS_TOKEN_CHARS_MIN} characters or more")
    return found
