"""Graceful shutdown on SIGTERM: finish the current work, then stop."""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def reporting_once() -> Iterator[None]:
    """Do not log what the report prints to the same terminal."""

    def is_not_in_report(record: logging.LogRecord) -> bool:
        return not getattr(record, "is_in_report", False)

    logger = logging.getLogger("notify.delivery.runner")
    logger.addFilter(is_not_in_report)
    try:
        yield
    finally:
        logger.removeFilter(is_not_in_report)


@contextlib.contextmanager
def stopping_on_sigterm() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGTERM was received; the previous handler is restored at the end."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may have handlers; called from another, the process decides by itself.
        yield asked.is_set
        return
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    # SQL Server's driver takes a call of the system that a signal has interrupted for a lost connection.
    signal.siginterrupt(signal.SIGTERM, False)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, before)
