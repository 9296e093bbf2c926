"""SIGTERM is a wish, which no driver may take for a lost connection."""

import contextlib
import ctypes
import errno
import os
import signal
import threading
import time

import pytest

from notify.stopping import stopping_on_sigterm

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
