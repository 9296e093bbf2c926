"""
What a host project writes against: a step declares its events, the engine does the rest.

::

    @register
    class CommentAdded(Step):
        kind = "comment"
        template = "comment"

        def events(self, scope):
            return Comment.objects.values("body", key=F("line_id"), key2=F("id"), event_at=F("created_at"),
                                          recipients=F("recipient__email"), language=F("recipient__language"))
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models import BigIntegerField, Exists, F, IntegerField, Min, OuterRef, Q, QuerySet, Value, Window
from django.utils import timezone, translation

from .conf import Conf, as_moment
from .errors import UnknownStep, WrongKey
from .keys import ORIGINAL_KEY_UNITS_MAX, DigestKey, EventKey, UuidKey, key_in
from .models import Control
from .text import clean, one_line, shorten

#: The columns of an event that the engine reads; every other column is a value for the templates, and the last two of
#: these are values as well.
RESERVED = ("key", "key2", "original_key", "recipients", "language", "assignee", "event_at", "tenant")

#: UTF-16 code units of a language that was asked for and is shown to people.
LANGUAGE_UNITS_MAX = 40


@dataclass(frozen=True)
class Scope:
    """
    What a pass looks at.

    ``since`` is the start of the window by event time, None when the pass looks at all. The engine applies it to
    ``event_at``; ``within`` is for steps that group or join before that.
    """

    now: datetime
    since: datetime | None = None

    def within(self, path: str) -> Q:
        """Return the condition that a time column lies in the window."""
        return Q() if self.since is None else Q(**{f"{path}__gte": self.since})


class Event(NamedTuple):
    """One candidate as its step's query gave it; ``values`` are the columns that are not the engine's own."""

    kind: str
    key: int
    key2: int
    recipients: Any = None
    language: str = ""
    assignee: str = ""
    values: Mapping[str, Any] = MappingProxyType({})
    #: As the query gave it; one that is no tenant's name blocks the message.
    tenant: Any = ""
    #: The language that was asked for, where the site does not have it and ``language`` is another.
    asked_language: str = ""
    #: What people call the event, where its key is made of other columns; the templates' ``key`` then.
    original_key: str = ""
    #: All events of a message that stands for several, oldest first; empty where it stands for this one.
    members: tuple["Event", ...] = ()


@dataclass(frozen=True)
class Attachment:
    """
    A file of a mail: ``path`` in a storage (an alias of ``STORAGES``), or ``content``, called when the mail is sent.

    ``name`` is what recipients see, the path's last part without it.
    """

    path: str = ""
    storage: Any = "default"
    name: str = ""
    content: bytes | str | Callable[[], bytes | str] | None = None
    content_type: str = ""


class Step:
    """
    One kind of notification.

    ``events`` gives one row per event, as a queryset of dicts with the columns ``key`` and ``event_at``, and as needed
    ``key2`` (0 without it), ``recipients``, ``language``, ``assignee``, ``tenant``; all other columns are values for
    the templates.
    """

    #: 1 to 10 characters; stored in the control table, so never change it once events have been notified.
    kind: ClassVar[str] = ""
    #: ``notify/mail/<template>.subject.txt`` and its bodies; None: no mail.
    template: ClassVar[str | None] = None
    #: ``notify/task/<task>.title.txt``; None: no task.
    task: ClassVar[str | None] = None
    #: Groups per pass at most: True for NOTIFY_BREAKER, a number of its own, False for no limit.
    breaker: ClassVar[bool | int] = False
    #: Whether all new events of one key in a pass become one message. Each has its own control row, and the templates
    #: get all of them as ``events``, oldest first, beside the values of the newest.
    coalesce: ClassVar[bool] = False
    #: Events older than this are never notified; the later of this and NOTIFY_NOT_BEFORE counts.
    not_before: ClassVar[datetime | None] = None
    #: Whether an ordinary pass reads the window (NOTIFY_LOOKBACK) only. False where the query itself finds few rows.
    is_windowed: ClassVar[bool] = True
    #: Whether mails to one recipient are collected for NOTIFY_DIGEST, or for a time of its own, and sent as one.
    digest: ClassVar[bool | timedelta] = False
    #: Whether mails wait for the end of NOTIFY_QUIET_HOURS. The time zone is the event's value ``timezone`` (a name
    #: like ``Asia/Tokyo``), the site's own where there is none.
    keeps_quiet_hours: ClassVar[bool] = False
    #: Whether the step's query is asked once more for an event right before its mail is sent; the mail of one that is
    #: gone is withdrawn.
    recheck: ClassVar[bool] = False
    #: Name of the kind on the page of an unsubscribe link; the kind when empty.
    label: ClassVar[Any] = ""
    #: Whether a recipient cannot leave these mails by an unsubscribe link: they are part of a contract, say.
    mandatory: ClassVar[bool] = False
    #: What follows may each be a method that is given the event. The sender; NOTIFY_FROM_EMAIL when empty.
    from_email: Any = ""
    #: Where answers go: one address or several, with display names if wanted.
    reply_to: Any = ()
    #: Who gets a copy, openly or blindly; given as ``recipients``. Each has an outcome of their own.
    cc: Any = ()
    bcc: Any = ()
    #: More headers by name. What a header cannot hold blocks the mail.
    headers: Any = MappingProxyType({})
    #: Files: of ``Attachment``, values of a FileField, or paths in the default storage. Read when the mail is sent.
    attachments: Any = ()
    #: Where the site is, for the links of this step's mails; NOTIFY_SITE_URL when empty.
    site_url: Any = ""
    #: Values of one event, as the templates get them; tests and previews render it.
    example: ClassVar[Mapping[str, Any]] = {}

    @property
    def templates(self) -> tuple[str, ...]:
        """The names of all templates that the step may have; a mail's subject, or a task's title, must be there."""
        title = (f"notify/task/{self.task}.title.txt",) if self.task is not None else ()
        parts = ("subject.txt", "body.txt", "body.html") if self.template is not None else ()
        digest = tuple(f"digest.{part}" for part in parts) if self.digest else ()
        return (*(f"notify/mail/{self.template}.{part}" for part in (*parts, *digest)), *title)

    def events(self, scope: Scope) -> QuerySet[Any, Any]:
        """Return one row per event in scope."""
        raise NotImplementedError(f"{type(self).__qualname__} must say what its events are")

    def keyed_events(self, scope: Scope, *, using: str | None) -> QuerySet[Any, Any]:
        """Return one row per event in scope, with a ``key2`` also where the step gives none."""
        return self.rekeyed(self.events(scope).using(using))

    def recheck_events(self, scope: Scope) -> QuerySet[Any, Any]:
        """Return the events that are still true, for ``recheck``: those of ``events``, unless a step knows better."""
        return self.events(scope)

    def rekeyed(self, found: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
        """Return a step's events with a ``key2`` also where the step gives none."""
        if key := key_in(found):
            made: QuerySet[Any, Any] = found.annotate(key2=key.other_half(), original_key=key.original())
            return made
        return found if "key2" in columns_of(found) else found.annotate(key2=Value(0, BigIntegerField()))

    def made_key(self, *, using: str | None) -> EventKey | None:
        """Return the step's key when it is made of other columns; None for a plain integer."""
        return key_in(self.keyed_events(Scope(now=timezone.now()), using=using))

    def get_key(self, text: str, text2: str | None = None, *, using: str) -> tuple[int, int | None]:
        """
        Return the two integers of a key as people write it; the second is None when they leave it open.

        Raises: WrongKey.
        """
        key = self.made_key(using=using)
        if key is None:
            return as_integer(text), None if text2 is None else as_integer(text2)
        try:
            return key.numbers(text, using=using)
        except WrongKey:
            # The two integers themselves, as pages and the API show them too.
            if text2 is None:
                raise
            return as_integer(text), as_integer(text2)

    def only(
        self, found: QuerySet[Any, Any], *, key: int, key2: int | None = None, original_key: str = ""
    ) -> QuerySet[Any, Any]:
        """Return the rows of one event among ``keyed_events``: sought by their own columns where they are known."""
        asked = {"key": key} if key2 is None else {"key": key, "key2": key2}
        made = key_in(found)
        if isinstance(made, UuidKey) and key2 is not None:
            original_key = str(UuidKey.from_numbers(key, key2))
        condition = (made.matching([original_key]) if made is not None and original_key else None) or Q()
        rows: QuerySet[Any, Any] = found.filter(condition, **asked)
        return rows

    def any_of(self, found: QuerySet[Any, Any], controls: Sequence[Control]) -> QuerySet[Any, Any]:
        """Return the rows of several events: sought by their own columns where they are known."""
        made, condition = key_in(found), None
        if isinstance(made, UuidKey):
            condition = made.matching([str(UuidKey.from_numbers(each.key, each.key2)) for each in controls])
        elif made is not None and all(0 < len(each.original_key) < ORIGINAL_KEY_UNITS_MAX for each in controls):
            condition = made.matching([each.original_key for each in controls])
        rows: QuerySet[Any, Any] = found.filter(condition or Q(key__in=[each.key for each in controls]))
        return rows

    def candidates(self, scope: Scope, *, not_before: datetime | None, using: str | None) -> QuerySet[Any, Any]:
        """
        Return the events in scope that have no control row yet, oldest first, as one anti-join.

        Raises: ImproperlyConfigured when a key is an aggregate.
        """
        found = self.keyed_events(scope, using=using)
        for name in ("key", "key2"):
            # Django would put the aggregate into the HAVING of the sub-select below, which no database understands.
            if getattr(found.query.annotations.get(name), "contains_aggregate", False):
                raise ImproperlyConfigured(
                    f"step {self.kind}: {name} must not be an aggregate; select the one row that is meant, for example "
                    f"the newest by ~Exists(newer)"
                )
        known = Control.objects.using(using).filter(kind=self.kind, key=OuterRef("key"), key2=OuterRef("key2"))
        made = key_in(found)
        found = found.filter(~Exists(known), *([Q(key__isnull=False)] if made is None else made.is_known()))
        if scope.since is not None:
            found = found.filter(event_at__gte=scope.since)
        if not_before is not None:
            found = found.filter(event_at__gte=not_before)
        if self.coalesce:
            # All of a key together, the key with the oldest event first.
            return found.order_by(Window(Min("event_at"), partition_by=[F("key")]), "key", "event_at", "key2")
        return found.order_by("event_at", "key", "key2")


class FlaggedStep(Step):
    """
    A step whose rows carry a flag of their own: it finds events by the flag, not by the window, and raises it after.

    The flag only saves work: what was notified is known from the control table, so a flag that a crash left down is
    raised by the next pass without a second message.
    """

    is_windowed = False
    #: The boolean field of the flagged rows.
    flag: ClassVar[str] = "handled"
    #: The field of the flagged rows that holds the event's key; several for a key that is made of several.
    flag_key: ClassVar[str | tuple[str, ...]] = ""

    @property
    def flag_keys(self) -> tuple[str, ...]:
        """The fields of the flagged rows that hold the event's key."""
        return (self.flag_key,) if isinstance(self.flag_key, str) else self.flag_key

    def flagged(self) -> QuerySet[Any]:
        """Return the rows that carry the flag."""
        raise NotImplementedError(f"{type(self).__qualname__} must say which rows carry its flag")

    def flagged_of(self, *, key: int, key2: int, using: str | None) -> QuerySet[Any]:
        """Return the flagged rows of one event."""
        rows = self.flagged().using(using)
        made = self.made_key(using=using)
        if made is None:
            return rows.filter(**{self.flag_keys[0]: key})
        halves = {"kwit_key": made.of(*self.flag_keys), "kwit_key2": made.of(*self.flag_keys, half=1)}
        found: QuerySet[Any] = rows.alias(**halves).filter(kwit_key=key, kwit_key2=key2)
        return found

    def left_behind(self, *, using: str | None) -> QuerySet[Any]:
        """Return the rows whose flag is down although their event has had its message, by primary key."""
        made = self.made_key(using=using)
        outer = [OuterRef(name) for name in self.flag_keys]
        keys = (
            {"key": outer[0], "key2": 0} if made is None else {"key": made.of(*outer), "key2": made.of(*outer, half=1)}
        )
        known = Control.objects.using(using).filter(kind=self.kind, **keys)
        left = self.flagged().using(using).filter(Exists(known), **{self.flag: False})
        # By primary key, but not by its index: SQLite would rather read the whole table in that order than the few
        # rows that the index of waiting rows gives it.
        is_integer = isinstance(left.model._meta.pk, IntegerField)
        return left.order_by(F("pk") + 0 if is_integer else "pk")


def as_integer(text: str) -> int:
    """Return a key as people write it. Raises: WrongKey."""
    try:
        return int(text)
    except ValueError as error:
        raise WrongKey(f"{text!r} is no whole number, as this kind's keys are") from error


StepType = TypeVar("StepType", bound=type[Step])
_registered: dict[str, Step] = {}


def register(step: StepType) -> StepType:
    """Register a step; steps run in the order of their registration. Faults are found by ``manage.py check``."""
    _registered[f"{step.__module__}.{step.__qualname__}"] = step()
    return step


def registered() -> list[Step]:
    """Return all steps in the order they run."""
    return list(_registered.values())


def steps_of(kinds: Iterable[str] | None) -> list[Step]:
    """Return the steps of these kinds in the order they run, all for None. Raises: UnknownStep."""
    steps = registered()
    if not kinds:
        return steps
    wanted = set(kinds)
    # Not a set: the kind of a faulty step may be anything.
    if unknown := wanted.difference([step.kind for step in steps if isinstance(step.kind, str)]):
        raise UnknownStep(f"no step of kind {sorted(unknown)}; there are {[step.kind for step in steps]}")
    return [step for step in steps if isinstance(step.kind, str) and step.kind in wanted]


def step_of(kind: str) -> Step | None:
    """Return the step of a kind; None when no app registers it any more."""
    return next((step for step in registered() if step.kind == kind), None)


def not_before_of(step: Step, settings: Conf) -> datetime | None:
    """Return the moment before which a step's events are never notified: the later of its own and the site's."""
    moments = [moment for moment in (as_moment(step.not_before), settings.NOT_BEFORE) if moment is not None]
    return max(moments, default=None)


def breaker_of(step: Step, settings: Conf) -> int | None:
    """Return the most groups of a step in one pass; None for no limit."""
    if not step.breaker:
        return None
    return settings.BREAKER if step.breaker is True else step.breaker


def steps_with_keys(*, using: str) -> list[Step]:
    """Return the steps whose key is made of other columns; one that is faulty has none."""
    found = []
    for step in registered():
        with suppress(Exception):  # whatever the host's code raises; ``check`` says so
            if step.made_key(using=using) is not None:
                found.append(step)
    return found


def find_key(kind: str, text: str, text2: str | None = None, *, using: str) -> tuple[int, int | None]:
    """Return the two integers of a key as people write it, also of a kind that is gone. Raises: WrongKey."""
    step = step_of(kind)
    if step is None:
        return as_integer(text), None if text2 is None else as_integer(text2)
    return step.get_key(text, text2, using=using)


def columns_of(queryset: QuerySet[Any, Any]) -> list[str]:
    """Return the names of a dict queryset's columns."""
    query = queryset.query
    selected = getattr(query, "selected", None)
    if selected:
        return list(selected)
    return [*query.extra_select, *query.values_select, *query.annotation_select]


def reading_order(names: Iterable[str]) -> list[str]:
    """Return the columns of an event as ``event_reader`` wants them: the engine's own first, values last."""
    return sorted(names, key=lambda name: RESERVED.index(name) if name in RESERVED else len(RESERVED))


def event_reader(kind: str, names: Sequence[str]) -> Callable[[Sequence[Any]], Event]:
    """Return what makes an event of a row of these columns, which are in ``reading_order``."""
    places = {name: place for place, name in enumerate(names) if name in RESERVED}
    key, key2 = places["key"], places["key2"]
    original, recipients, language, assignee, tenant = (
        places.get(name) for name in ("original_key", "recipients", "language", "assignee", "tenant")
    )
    first = min(places.get(name, len(places)) for name in ("event_at", "tenant"))
    value_names = names[first:]

    def as_event(row: Sequence[Any]) -> Event:
        spoken, asked = find_language("" if language is None else str(row[language] or ""))
        return Event(
            kind,
            row[key],
            row[key2],
            None if recipients is None else row[recipients],
            spoken,
            "" if assignee is None else clean(str(row[assignee] or "")),
            # Not strict: one row of a query is as long as the next, and this runs for each of them.
            dict(zip(value_names, row[first:])),  # noqa: B905
            "" if tenant is None or row[tenant] is None else row[tenant],
            asked,
            "" if original is None else shorten(clean(str(row[original] or "")), ORIGINAL_KEY_UNITS_MAX),
        )

    return as_event


@lru_cache(maxsize=1024)
def find_language(given: str) -> tuple[str, str]:
    """
    Return the site's language that serves a recipient best, and what was asked for where that is another one.

    ``pl``, ``PL``, ``"pl "`` are spellings of one language, ``pl_PL`` and ``pl-PL`` of another; what the site does not
    have falls back to its parent (``pl``), then to the site's own.
    """
    # "pl_PL.UTF-8" and "sr@latin" are the names of POSIX.
    asked = given.strip().replace("_", "-").lower().split(".")[0].split("@")[0]
    if not asked:
        return str(settings.LANGUAGE_CODE), ""
    try:
        found = translation.get_supported_language_variant(asked)
    except (LookupError, ValueError):  # ValueError: longer than any language code
        return str(settings.LANGUAGE_CODE), shorten(one_line(given), LANGUAGE_UNITS_MAX)
    return found, "" if found.lower() == asked else asked


def supported_language(code: str | None) -> str:
    """Return the site's language that serves a recipient best; the site's own where it has none like it."""
    return find_language(code or "")[0]


def is_parent(language: str, asked: str) -> bool:
    """Whether a recipient who asked for a language gets one that it is a variant of."""
    return asked.split("-")[0] == language.split("-")[0].lower()


__all__ = ["Attachment", "DigestKey", "Event", "FlaggedStep", "Scope", "Step", "UuidKey", "register", "registered"]
