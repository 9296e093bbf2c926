"""Several events of one key as one message: what a step with ``coalesce`` sends; pure."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ..addresses import parse_recipients
from ..steps import Event

#: Most events in one message, to keep it readable. The rest of a key gives another message.
EVENTS_MAX = 1000
#: The name under which templates get all of them, oldest first; each has its own values and its ``key2``.
EVENTS = "events"


def coalesce(events: Sequence[Event]) -> Event:
    """
    Return what stands for several events of one key, oldest first: the newest, with the values of all.

    Everybody who is a recipient of one of them is a recipient.
    """
    newest = events[-1]
    values = {**newest.values, EVENTS: [{**event.values, "key2": event.key2} for event in events]}
    return newest._replace(values=values, recipients=all_recipients(events), members=tuple(events))


def all_recipients(events: Sequence[Event]) -> Any:
    """Return the recipients of several events, as one of them gives its own where all are alike."""
    first = events[0].recipients
    if all(event.recipients == first for event in events):
        return first
    parsed = [parse_recipients(event.recipients) for event in events]
    return list(dict.fromkeys(address for found in parsed for address in (*found.good, *found.bad)))


def coalesce_groups(events: Sequence[Event]) -> list[Event]:
    """Return one event per key and at most EVENTS_MAX events; those of one key stand together."""
    groups = [list(group) for _key, group in groupby(events, key=lambda event: event.key)]
    return [
        coalesce(group[start : start + EVENTS_MAX]) for group in groups for start in range(0, len(group), EVENTS_MAX)
    ]


def split_last_key(events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """Return the events of all keys but the last, and those of the last, of which more may follow."""
    if not events or (len(events) > EVENTS_MAX and events[0].key == events[-1].key):
        return list(events), []
    place = next(place for place in range(len(events), 0, -1) if events[place - 1].key != events[-1].key or place == 1)
    place = 0 if events[0].key == events[-1].key else place
    return list(events[:place]), list(events[place:])


def as_coalesced(event: Event) -> Event:
    """Return an event as a template of such a step wants it; one that is made of several stays as it is."""
    return event if event.members or EVENTS in event.values else coalesce([event])
