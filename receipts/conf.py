"""Every setting of ``settings.RECEIPTS``: its type, its default and its unit."""

from dataclasses import dataclass, field, fields

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

    #: What names the log in its checkpoints, as a URL without scheme: ``example.com/receipts``. Empty: the name of the
    #: first signing key.
    log_origin: str = ""
    #: Keys of the log, one a line or separated by blanks: private ones sign, verifier keys are known. A file, or text.
    log_key_file: str = ""
    log_keys: str = field(default="", repr=False)
    #: Where checkpoints are kept outside the database, separated by blanks: directories, and http(s) URLs.
    log_publish: str = ""
    #: Witnesses that are asked for a cosignature, separated by blanks: http(s) URLs.
    log_witnesses: str = ""


#: What a message calls the values that a setting takes.
TAKES: dict[type, str] = {int: "an integer from 1 on (0 where that is the default)", str: "a text"}


def load_settings() -> ReceiptsSettings:
    """Read ``settings.RECEIPTS``; an unknown name or a value of another type raises ImproperlyConfigured."""
    given = getattr(settings, "RECEIPTS", {})
    known = {field.name.upper(): field for field in fields(ReceiptsSettings)}
    if unknown := sorted(set(given) - set(known)):
        raise ImproperlyConfigured(f"RECEIPTS has no setting {', '.join(unknown)}; it knows {', '.join(sorted(known))}")
    for name, value in given.items():
        wanted = type(known[name].default)
        if type(value) is not wanted or (type(value) is int and value < (0 if known[name].default == 0 else 1)):
            # A secret is not shown.
            shown = repr(value) if known[name].repr else type(value).__name__
            raise ImproperlyConfigured(f"RECEIPTS[{name!r}] must be {TAKES[wanted]}, not {shown}")
    return ReceiptsSettings(**{known[name].name: value for name, value in given.items()})
