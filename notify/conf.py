"""
Every setting of the engine: type, default, unit.

They are read from the dict ``settings.NOTIFY``; a name that is not one of them is refused.
"""

from dataclasses import dataclass, fields
from datetime import date, datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

#: What each annotation below admits, and how a message calls it.
ADMITTED: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number above 0"),
    timedelta: ((timedelta,), "a timedelta above 0"),
    timedelta | None: ((timedelta, type(None)), "a timedelta above 0 or None"),
    bool: ((bool,), "True or False"),
    float | None: ((int, float, type(None)), "a number above 0 or None"),
    str: ((str,), "a text"),
    tuple[time, time] | None: ((tuple, list, str, type(None)), "'22:00-07:00' or None"),
    datetime | None: ((datetime, date, type(None)), "a date, a datetime or None"),
}


#: The least that a number may be: a mail in ten minutes is about as slow as a lease allows.
LEAST: dict[Any, float] = {int: 1, float | None: 1 / 600}
#: The most that any number may be, so that every database takes it; and the longest time, a thousand years, so that a
#: moment so long ago can still be reckoned.
NUMBER_MAX = 2**31 - 1
DAYS_MAX = 365_000


@dataclass(frozen=True, kw_only=True)
class Conf:
    """The engine's settings; each field's comment gives its unit and where the default comes from."""

    #: Days. Run-log rows older than this are deleted by each pass.
    LOG_RETENTION_DAYS: int = 60
    #: Rows. At most this many run-log rows are deleted by one pass.
    LOG_PRUNE_BATCH: int = 5000
    #: Groups. At most this many events of a step with a circuit breaker are prepared in one pass.
    BREAKER: int = 500
    #: Rows per statement when marking rows as handled.
    MARK_BATCH: int = 2000
    #: How far back an ordinary pass looks for events, by event time.
    LOOKBACK: timedelta = timedelta(days=1)
    #: A step looks at all events when it last did so longer ago than this.
    FULL_EVERY: timedelta = timedelta(days=1)
    #: How often passes are expected; None: as often as they ran on the last day with passes.
    EXPECT_EVERY: timedelta | None = None
    #: Where a monitoring service hears of the start, success and failure of each pass (http or https); empty: nowhere.
    PING_URL: str = ""
    #: Events older than this are never notified.
    NOT_BEFORE: datetime | None = None
    #: Events per transaction. 5,000 keeps a transaction well under a second and the memory of a pass flat.
    CHUNK_ROWS: int = 5000
    #: Whether ``OK@example.org`` and ``ok@example.org`` are one recipient (the domain is always compared without case).
    FOLD_LOCAL_PART: bool = True

    #: How mails go out: ``auto`` (our own SMTP where Django's mail settings say SMTP, else Django's backend), ``smtp``,
    #: ``backend``, or the dotted path of a transport.
    TRANSPORT: str = "auto"
    #: Which entry of MAILERS is meant, on a Django that has them.
    MAILER: str = "default"
    #: The sender; Django's DEFAULT_FROM_EMAIL when empty.
    FROM_EMAIL: str = ""
    #: The right-hand side of each Message-ID; the sender's domain when empty.
    MESSAGE_ID_DOMAIN: str = ""
    #: Where the site is, for absolute links in mails: ``https://example.org``; a step may have one of its own.
    SITE_URL: str = ""
    #: Bytes of all attachments of one mail. Base64 makes 13 MiB of them; many servers take 20 to 25.
    ATTACHMENT_BYTES: int = 10 * 2**20
    #: Where recipients can unsubscribe: a mailto: or https: address, ``{kind}`` is filled in. Empty: mail the sender.
    UNSUBSCRIBE: str = ""
    #: Whether the password may go to another machine over a connection that is not encrypted.
    SMTP_ALLOW_CLEAR_AUTH: bool = False
    #: Attempts per mail that the server answered with "not now". 12, with the pauses below, take about a day.
    ATTEMPTS_MAX: int = 12
    #: Pause before the second attempt; doubled each time, up to half as much again at random.
    RETRY_BASE: timedelta = timedelta(minutes=1)
    RETRY_MAX: timedelta = timedelta(hours=4)
    #: Recipients per SMTP transaction. Every server takes 100 (RFC 5321 section 4.5.3.1.8).
    RECIPIENTS_MAX: int = 100
    #: How long a worker may keep a mail without a word. At least twice the longest wait for a server's answer.
    LEASE: timedelta = timedelta(minutes=5)
    #: Mails per claim. Some for a connection to be worth while, few for the others to find some.
    CLAIM_BATCH: int = 50
    #: Connections that one worker keeps busy at once.
    LANES: int = 8
    #: Octets of a digest with its headers, as it goes over the wire; what does not fit makes the next one. A server
    #: that announces a smaller SIZE gets no larger ones.
    DIGEST_BYTES: int = 5_000_000
    #: Mails per second and channel, over all workers; no limit when None.
    RATE: float | None = None
    #: Mails over one connection, then it is closed; many servers end a conversation after about as many.
    CONNECTION_MAILS: int = 100
    #: What becomes of a mail whose answer never came: ``hold`` it for a person, or ``resend`` it.
    ON_UNCERTAIN: str = "hold"
    #: How long a channel rests after a connection, authentication or quota error; doubled each time up to the most.
    PAUSE: timedelta = timedelta(minutes=1)
    PAUSE_MAX: timedelta = timedelta(hours=1)
    #: Whether a hard refusal of a mailbox puts it on the suppression list.
    SUPPRESS_REFUSED: bool = False
    #: Whether a mail that comes back because there is no such mailbox does; whether a complaint does.
    SUPPRESS_BOUNCED: bool = False
    SUPPRESS_COMPLAINED: bool = False
    #: Where reports about mails that were sent come back to, as ``bounces@example.org``: each mail has an address of
    #: its own there, ``bounces+TOKEN@example.org``. Empty: to the sender, and nobody reads them.
    BOUNCE_ADDRESS: str = ""
    #: Whether a mail to one recipient has a link by which he unsubscribes from its kind (RFC 8058); needs SITE_URL.
    UNSUBSCRIBE_LINKS: bool = False
    #: Days after which finished mails are deleted; None keeps them. And the most that one pass deletes.
    MAIL_RETENTION_DAYS: float | None = None
    MAIL_PRUNE_BATCH: int = 1000
    #: How long a mail of a step with ``digest`` waits for others to the same recipient.
    DIGEST: timedelta = timedelta(minutes=15)
    #: When steps with ``keeps_quiet_hours`` send nothing, in the recipient's time zone: ``22:00-07:00``.
    QUIET_HOURS: tuple[time, time] | None = None
    #: A file outside the database by which a restored database is recognised; empty: it is not. docs/restoring.md.
    EPOCH_FILE: str = ""
    #: Who delivers: this site itself when empty, else ``celery``, ``tasks`` (Django's), or the dotted path of a sink.
    SINK: str = ""
    #: How long a sink's engine may take before its mails are handed over again.
    HANDOVER_LEASE: timedelta = timedelta(minutes=15)

    def __post_init__(self) -> None:
        """Refuse a value of the wrong type or below 1, naming the setting."""
        for field in fields(self):
            admitted, described = ADMITTED[field.type]
            value = getattr(self, field.name)
            is_number = field.type in (int, float | None)
            wrong = not isinstance(value, admitted) or (isinstance(value, bool) and is_number)
            is_too_small = not wrong and is_number and value is not None and not value >= LEAST[field.type]
            if wrong or is_too_small or (isinstance(value, timedelta) and value <= timedelta(0)):
                raise ImproperlyConfigured(f"NOTIFY[{field.name!r}] must be {described}, not {value!r}")
            is_too_large = is_number and value is not None and value > NUMBER_MAX
            if is_too_large or (isinstance(value, timedelta) and value.days > DAYS_MAX):
                largest = f"at most {NUMBER_MAX}" if is_number else f"at most {DAYS_MAX} days"
                raise ImproperlyConfigured(f"NOTIFY[{field.name!r}] must be {largest}, not {value!r}")
        if self.PING_URL and not self.PING_URL.startswith(("https://", "http://")):
            raise ImproperlyConfigured("NOTIFY['PING_URL'] must begin with https:// or http://")
        for name in ("LOG_RETENTION_DAYS", "MAIL_RETENTION_DAYS"):
            if (days := getattr(self, name) or 0) > DAYS_MAX:
                raise ImproperlyConfigured(f"NOTIFY[{name!r}] must be at most {DAYS_MAX}, not {days!r}")
        object.__setattr__(self, "NOT_BEFORE", as_moment(self.NOT_BEFORE))
        object.__setattr__(self, "QUIET_HOURS", as_hours(self.QUIET_HOURS))
        if self.ON_UNCERTAIN not in ("hold", "resend"):
            raise ImproperlyConfigured(f"NOTIFY['ON_UNCERTAIN'] must be 'hold' or 'resend', not {self.ON_UNCERTAIN!r}")


def as_moment(value: date | datetime | None) -> datetime | None:
    """Return an aware datetime; a date means its first moment in the current time zone."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        value = datetime.combine(value, time.min)
    return timezone.make_aware(value) if timezone.is_naive(value) else value


def as_hours(value: Any) -> tuple[time, time] | None:
    """Return the two ends of the quiet hours. Raises: ImproperlyConfigured."""
    if not value:
        return None
    try:
        first, last = (
            (time.fromisoformat(part.strip()) for part in value.split("-")) if isinstance(value, str) else value
        )
        # With a zone the two could not be compared with the recipient's clock, which is what they are about.
        is_right = all(isinstance(each, time) and each.tzinfo is None for each in (first, last)) and first != last
    except (ValueError, TypeError):
        is_right = False
    if not is_right:
        raise ImproperlyConfigured(
            f"NOTIFY['QUIET_HOURS'] must be two times without a zone as in '22:00-07:00', not {value!r}"
        )
    return first, last


def conf() -> Conf:
    """Return the settings of now. Raises: ImproperlyConfigured, naming the setting."""
    given: dict[str, Any] = getattr(settings, "NOTIFY", {})
    known = {field.name for field in fields(Conf)}
    if unknown := sorted(set(given) - known):
        raise ImproperlyConfigured(f"NOTIFY has unknown settings {unknown}; known are {sorted(known)}")
    return Conf(**given)
