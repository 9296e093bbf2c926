"""
Work that an app has done at intervals by whoever runs for good: ``manage.py notify_work`` after each of its rounds.

An app registers a job when it is ready. A job limits its own time, and is safe to run in several processes at once.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One piece of work: a name for the log, and how many seconds are between two of its runs at least."""

    name: str
    every_s: float
    #: Takes a function that returns whether the process has been asked to stop.
    run: Callable[[Callable[[], bool]], object]


_registered: dict[str, Job] = {}
_last_run: dict[str, float] = {}


def register(job: Job) -> Job:
    """Make a job known by its name, instead of an earlier one of that name."""
    _registered[job.name] = job
    return job


def run_jobs(
    is_stopping: Callable[[], bool] = lambda: False, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[str, Exception | None]]:
    """Run each job whose time has come; yield its name, and the error it ended with. The others run all the same."""
    for job in list(_registered.values()):
        now, last = clock(), _last_run.get(job.name)
        if is_stopping() or (last is not None and now - last < job.every_s):
            continue
        _last_run[job.name] = now
        try:
            job.run(is_stopping)
        except Exception as error:
            logger.exception("the job %s has failed", job.name)
            yield job.name, error
        else:
            yield job.name, None
