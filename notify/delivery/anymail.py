"""Events of sending services, as django-anymail's webhooks hand them on (extra ``anymail``)."""

from typing import Any

from ..models import AttemptOutcome
from ..transports.base import Reply
from ..transports.django import REPORT_METADATA
from .feedback import take_event
from .reports import Report

#: Of anymail's event types; all others (opened, clicked, deferred …) say nothing that Kwit records.
OUTCOMES = {
    "bounced": AttemptOutcome.BOUNCED,
    "rejected": AttemptOutcome.BOUNCED,
    "complained": AttemptOutcome.COMPLAINED,
    "delivered": AttemptOutcome.DELIVERED,
}
#: Reasons for which no mail will ever arrive at an address.
HARD = frozenset({"bounced", "invalid"})


def take_tracking(sender: Any, event: Any, esp_name: str = "", **kwargs: Any) -> None:
    """Record one event; one without our token, or with a forged one, changes nothing."""
    token = str((event.metadata or {}).get(REPORT_METADATA, ""))[:200]
    if event.event_type not in OUTCOMES or not token:
        return
    outcome = OUTCOMES[event.event_type]
    words = " ".join(str(part) for part in (event.mta_response, event.description, esp_name) if part)
    is_hard = outcome == AttemptOutcome.BOUNCED and event.reject_reason in HARD
    take_event(token, Report(event.recipient or "", outcome, Reply(text=words), is_hard=is_hard))


def connect() -> None:
    """Listen to django-anymail's events."""
    from anymail.signals import tracking

    tracking.connect(take_tracking, dispatch_uid="notify.delivery.anymail")
