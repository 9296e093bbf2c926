"""
The child process that reads one plan file: ``python -m receipts.plans.child REQUEST``, the file on stdin.

It limits itself before it reads a byte, and answers with one JSON object. What happens to it happens to no one else.
"""

import contextlib
import json
import sys
from typing import Any

from ..errors import Flaw, InvalidPlan, Words
from .limits import ANSWER_BYTES_MAX, READ_CPU_S_MAX, READ_MEMORY_BYTES_MAX, refusal, visible
from .readers import Request, encoded_content, encoded_flaw, read_content

#: Says that there was not enough memory; the parent knows how much there was.
EXIT_MEMORY = 70


def limit_resources(*, cpu_s: int | None = READ_CPU_S_MAX) -> None:
    """Set the limits of this process, as far as the system knows them."""
    try:
        import resource
    except ImportError:  # Windows: only the clock of the parent is left
        return
    limits = {
        resource.RLIMIT_AS: READ_MEMORY_BYTES_MAX,
        resource.RLIMIT_FSIZE: ANSWER_BYTES_MAX,
        resource.RLIMIT_CORE: 0,
    }
    if cpu_s is not None:
        limits[resource.RLIMIT_CPU] = cpu_s
    for name, value in limits.items():
        # At the hard limit of processor time comes SIGKILL, which says nothing; at the soft one comes SIGXCPU.
        more = 1 if name == resource.RLIMIT_CPU else 0
        # A system may refuse one (macOS has no RLIMIT_AS), or have a lower one set already.
        with contextlib.suppress(ValueError, OSError):
            hard = resource.getrlimit(name)[1]
            lowest = value + more if hard == resource.RLIM_INFINITY else min(value + more, hard)
            resource.setrlimit(name, (min(value, lowest), lowest))


def answer_to(data: bytes, request: Request) -> str:
    """Return the answer to one file: its content, or the refusal. Raises: MemoryError."""
    try:
        answer = encoded_content(read_content(data, request))
        # Is ASCII: as many bytes as characters.
        return answer if len(answer) <= ANSWER_BYTES_MAX else refused(too_much())
    except InvalidPlan as error:
        return refused(error)
    except MemoryError:
        raise
    except BaseException as error:
        text = visible(f"{type(error).__name__}: {error}")
        return refused(refusal(Words("cannot be read: %(error)s", error=text)))


def too_much() -> InvalidPlan:
    """Return the refusal of a file whose values are too long together."""
    text = Words("has more than %(limit)s bytes", limit=format(ANSWER_BYTES_MAX, ","))
    return InvalidPlan([Flaw("targets", text)])


def refused(error: InvalidPlan) -> str:
    """Return a refusal as it travels."""
    return json.dumps({"refusal": [encoded_flaw(flaw) for flaw in error.flaws]})


def main(arguments: list[str]) -> int:
    """Read the file on stdin as the one argument asks."""
    limit_resources()
    asked: dict[str, Any] = json.loads(arguments[0])
    try:
        answer = answer_to(sys.stdin.buffer.read(), Request(**asked)).encode()
    except MemoryError:
        return EXIT_MEMORY
    sys.stdout.buffer.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
