"""Every setting of ``settings.RECEIPTS``: its type, its default and its unit."""

from dataclasses import dataclass, fields

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


@dataclass(frozen=True, kw_only=True)
class ReceiptsSettings:
    """What ``settings.RECEIPTS`` says; the keys there are these names in capitals."""

    #: Targets. Most in one change: ten thousand rows are applied well within a second, and a longer list is nothing
    #: that one person has approved with open eyes.
    max_targets: int = 10_000
    #: Days after which a plan that waits for a decision is closed, since it was last written or approved; 0: never.
    plan_expires: int = 0


def load_settings() -> ReceiptsSettings:
    """Read ``settings.RECEIPTS``; an unknown name or a value of another type raises ImproperlyConfigured."""
    given = getattr(settings, "RECEIPTS", {})
    known = {field.name.upper(): field.name for field in fields(ReceiptsSettings)}
    if unknown := sorted(set(given) - set(known)):
        raise ImproperlyConfigured(f"RECEIPTS has no setting {', '.join(unknown)}; it knows {', '.join(sorted(known))}")
    for name, value in given.items():
        least = 0 if name == "PLAN_EXPIRES" else 1
        if type(value) is not int or value < least:
            raise ImproperlyConfigured(f"RECEIPTS[{name!r}] must be an integer from {least} on, not {value!r}")
    return ReceiptsSettings(**{known[name]: value for name, value in given.items()})
