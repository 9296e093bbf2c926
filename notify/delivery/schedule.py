"""When a mail may go: backoff, quiet hours, digest windows; pure."""

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

from django.conf import settings

from ..conf import Conf
from ..steps import Step

#: The most doublings of a pause, so that no number of failures overflows a timedelta.
DOUBLINGS_MAX = 20


def retry_at(now: datetime, *, attempts: int, conf: Conf, random: Random) -> datetime:
    """Return when a mail is tried again after this many attempts: doubled each time, never two mails in step."""
    pause = min(conf.RETRY_MAX, doubled(conf.RETRY_BASE, attempts - 1))
    return now + pause * (1 + random.random() / 2)


def pause_until(now: datetime, *, failures: int, conf: Conf) -> datetime:
    """Return until when a channel pauses that failed this many times in a row before."""
    return now + min(conf.PAUSE_MAX, doubled(conf.PAUSE, failures))


def doubled(pause: timedelta, times: int) -> timedelta:
    """Return a pause doubled so many times."""
    factor: int = 2 ** min(times, DOUBLINGS_MAX)
    return pause * factor


def digest_window(step: Step | None, conf: Conf) -> timedelta | None:
    """Return how long a step's mails are collected; None for a step that wants no digest."""
    if step is None or not step.digest:
        return None
    return conf.DIGEST if step.digest is True else step.digest


def quiet_until(now: datetime, step: Step | None, conf: Conf, zone: object) -> datetime | None:
    """Return when the recipient's quiet hours end; None when they do not apply now."""
    if step is None or not step.keeps_quiet_hours or conf.QUIET_HOURS is None:
        return None
    first, last = conf.QUIET_HOURS
    local = now.astimezone(zone_of(zone))
    clock = local.time()
    is_quiet = first <= clock < last if first < last else clock >= first or clock < last
    if not is_quiet:
        return None
    # By the wall clock: "until seven" is seven o'clock also in the night in which an hour is skipped or repeated. A
    # time that comes twice is meant as it comes next. UTC, because Python compares times of one zone by the wall clock.
    day = local if clock < last else local + timedelta(days=1)
    end = day.replace(hour=last.hour, minute=last.minute, second=last.second, microsecond=last.microsecond)
    return next((at for fold in (0, 1) if (at := end.replace(fold=fold).astimezone(UTC)) > now), None)


def zone_of(name: object) -> ZoneInfo:
    """Return a recipient's time zone; the site's own where none is given or none like it exists."""
    try:
        return ZoneInfo(name) if isinstance(name, str) and name else ZoneInfo(settings.TIME_ZONE)
    except (KeyError, ValueError, OSError):  # not found; absolute or with "..": a text from outside; a directory's name
        return ZoneInfo(settings.TIME_ZONE)
