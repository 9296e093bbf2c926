"""Reads a plan file in a child process with limits, so that no file can harm the one that serves people."""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from ..errors import InvalidPlan, Words
from .child import EXIT_MEMORY
from .limits import ANSWER_BYTES_MAX, READ_CPU_S_MAX, READ_MEMORY_BYTES_MAX, READ_WALL_S_MAX, refusal
from .readers import Content, Request, decoded_content

log = logging.getLogger(__name__)


def read_apart(data: bytes, request: Request, *, wall_s: float = READ_WALL_S_MAX) -> Content:
    """
    Read a plan file in a process of its own.

    Raises: InvalidPlan, also when the process needs too much memory or time, or dies however it does.
    """
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if name in ("LANG", "LD_LIBRARY_PATH", "PATH", "SYSTEMROOT")
        },
        "PYTHONPATH": os.pathsep.join(import_path()),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-P", "-m", "receipts.plans.child", json.dumps(asdict(request))]
    with tempfile.TemporaryFile() as answer:
        process = subprocess.Popen(  # noqa: S603 - the file goes in as bytes, the request is ours
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.communicate(data, timeout=wall_s)
        except subprocess.TimeoutExpired:
            raise too_slow(wall_s) from None
        finally:
            end(process)
        if process.returncode:
            raise died(process.returncode)
        if os.fstat(answer.fileno()).st_size > ANSWER_BYTES_MAX:
            raise too_large()
        answer.seek(0)
        return decoded_content(json.load(answer))


def import_path() -> list[str]:
    """Return where this process imports from; an empty entry is the working directory, which the child must not add."""
    found = [os.path.abspath(entry) for entry in sys.path]
    # A site may have changed its working directory since.
    own = str(Path(__file__).resolve().parents[2])
    return found if own in found else [*found, own]


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and whatever it has started."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()


def died(code: int) -> InvalidPlan:
    """Return the refusal of a file that ended its reader."""
    log.warning("the reader of a plan file ended with code %d", code)
    if code == -getattr(signal, "SIGXCPU", 0):
        return too_slow(READ_CPU_S_MAX)
    if code in (EXIT_MEMORY, -signal.SIGKILL if hasattr(signal, "SIGKILL") else EXIT_MEMORY):
        return too_large()
    return refusal(Words("cannot be read: the reader ended with code %(code)s", code=code))


def too_slow(seconds: float) -> InvalidPlan:
    """Return the refusal of a file that takes too long."""
    return refusal(Words("needs more than %(seconds)s seconds to read", seconds=f"{seconds:g}"))


def too_large() -> InvalidPlan:
    """Return the refusal of a file that needs too much memory."""
    return refusal(Words("needs more than %(mb)s MB to read", mb=READ_MEMORY_BYTES_MAX // 2**20))
