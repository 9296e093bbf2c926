"""Whether the events of claimed mails are still true: their steps' queries are asked once more, one per kind."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from ..models import Control, MailQueue
from ..notes import Note, from_data, note
from ..steps import Scope, Step, step_of

logger = logging.getLogger(__name__)

#: The note of a mail that a person has released although its event is gone; it is not asked for again.
RELEASED = "released_though_gone"


def recheck(mails: Iterable[MailQueue], *, using: str, now: datetime) -> dict[int, Note]:
    """
    Return, by mail, why those are not to be sent whose event is no longer true, or of which that cannot be known.

    One query per kind whose step has ``recheck``.
    """
    by_kind: dict[str, list[MailQueue]] = {}
    for mail in mails:
        step = step_of(mail.control.kind)
        if step is None or not step.recheck or any(one.code == RELEASED for one in from_data(mail.notes)):
            continue
        # A digest that was on the wire once is sent again as it was.
        if not (step.digest and mail.message_text):
            by_kind.setdefault(mail.control.kind, []).append(mail)
    found: dict[int, Note] = {}
    for kind, some in by_kind.items():
        step = step_of(kind)
        assert step is not None  # noqa: S101 - for the type checker
        try:
            present = present_keys(step, [mail.control for mail in some], using=using, now=now)
        except Exception as error:  # whatever the site's query raises: these mails wait for a person, the others go on
            logger.exception("step %s cannot be asked again", kind)
            reason = note("cannot_be_rechecked", error=f"{type(error).__name__}: {error}")
            found |= {mail.pk: reason for mail in some}
            continue
        gone = note("withdrawn")
        found |= {mail.pk: gone for mail in some if (mail.control.key, mail.control.key2) not in present}
    return found


def present_keys(step: Step, controls: Sequence[Control], *, using: str, now: datetime) -> set[tuple[int, int]]:
    """Return which of these events the step's query still gives; one query."""
    events = step.rekeyed(step.recheck_events(Scope(now=now)).using(using))
    asked = step.any_of(events, controls)
    return set(asked.values_list("key", "key2"))
