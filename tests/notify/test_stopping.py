"""SIGTERM is a wish, which a pass grants after its chunk and no driver may take for a lost connection."""

import contextlib
import ctypes
import errno
import os
import signal
import threading
import time
from typing import Any

import pytest
from django.db import connection

from notify.management.shutdown import stopping_on_sigterm
from notify.models import RunLog
from tests.crashing import start_child
from tests.notify.samples import Remark, do_pass, mailed, make_comments

#: More signals than it takes to meet a call of the system.
SIGNALS = 200


@pytest.fixture(autouse=True)
def handler_of_before():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def read_under_fire() -> int:
    """Read from a pipe as a driver in C does, while signals come and a byte at last; return the error's number."""
    readable, writable = os.pipe()
    reader, has_returned = threading.get_ident(), threading.Event()

    def fire():
        for _ in range(SIGNALS):
            if has_returned.is_set():
                return
            signal.pthread_kill(reader, signal.SIGTERM)
            time.sleep(0.001)
        os.write(writable, b"x")

    thread = threading.Thread(target=fire)
    thread.start()
    with contextlib.closing(os.fdopen(readable)), contextlib.closing(os.fdopen(writable, "w")):
        count = ctypes.CDLL(None, use_errno=True).read(readable, ctypes.create_string_buffer(1), 1)
        number = ctypes.get_errno()
        has_returned.set()
        thread.join()
    return 0 if count == 1 else number


def test_sigterm_is_heard_and_interrupts_no_call_of_a_driver():
    with stopping_on_sigterm() as is_stopping:
        assert read_under_fire() == 0
        assert is_stopping()


def test_a_plain_handler_does_interrupt_it():
    """The control: mssql-python ends the connection then, with "Error code 0x2714"."""
    signal.signal(signal.SIGTERM, lambda *_: None)

    assert read_under_fire() == errno.EINTR


def stop_in_the_first_chunk() -> None:
    """Run a pass of chunks of one row that gets SIGTERM while the first is being written (runs in a child)."""
    from django.conf import settings
    from django.core.management import call_command

    from notify import steps

    settings.NOTIFY = {**settings.NOTIFY, "CHUNK_ROWS": 1}
    steps._registered.clear()
    steps.register(Remark)
    steps.register(type("Second", (Remark,), {"kind": "second"}))

    def send_signal(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "INTO notify_control" in sql:
            os.kill(os.getpid(), signal.SIGTERM)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(send_signal):
        call_command("notify_pass", "--json")


@pytest.mark.django_db(transaction=True)
def test_sigterm_finishes_the_chunk_in_hand_closes_the_log_and_releases_the_lock():
    comments = make_comments(3)

    child = start_child("tests.notify.test_stopping:stop_in_the_first_chunk")
    ended = child.end()

    assert ended.returncode == 0, ended.stderr
    assert mailed("remark") == [comments[0].pk], "the chunk in hand is finished, the next is not begun"
    whole = RunLog.objects.get(step="pass")
    assert whole.outcome == "warning"
    assert "stopped on request before step second" in whole.error
    step = RunLog.objects.get(step="remark")
    assert step.error == "stopped on request after 1 candidate"
    assert not step.is_full
    assert not RunLog.objects.running().exists()

    assert do_pass(kinds=["comment"]).outcome != "skipped", "the lock is free"
