"""
One base for all commands: ``--database``, ``--json``, errors as one JSON object, output that is safe on a terminal.

It needs neither the app ``kwit`` nor its models.
"""

import contextlib
import json
import math
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError, connections

#: EX_TEMPFAIL of sysexits.h: try again. A pass that was skipped, or a change with an unknown outcome.
EXIT_TRY_AGAIN = 75
#: The greatest number that a key column holds.
BIGGEST = 2**63 - 1

#: Characters that move the cursor, end the line, or change the order of what is read: C0, DEL and C1, the separators of
#: lines and paragraphs, marks of direction, and halves of surrogate pairs.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


#: Commands that a scheduler starts again and again.
RECURRING_COMMANDS = ("notify_pass", "notify_deliver", "notify_work")


def is_recurring_command() -> bool:
    """
    Whether this process runs a command that is started again and again.

    It draws no page: importing the admin's modules would take longer than a pass that finds nothing.
    """
    return not set(sys.argv[1:2]).isdisjoint(RECURRING_COMMANDS)


def escape_controls(text: str) -> str:
    """Return a text as one line in which no character acts on a terminal: a newline is shown as ``\\n``."""
    return UNSAFE.sub(lambda found: SHORT_ESCAPES.get(found[0], f"\\u{ord(found[0]):04x}"), text)


class LineOutput(OutputWrapper):
    """
    Writes one line at a time: a stored text can neither forge another line nor steer the terminal.

    What is JSON stays JSON: the escapes are those of JSON, and valid JSON has controls only inside its texts.
    """

    def write(  # type: ignore[override]
        self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None
    ) -> None:
        """Write a line, without what the stream's encoding cannot say."""
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        text = escape_controls(str(msg).removesuffix("\n"))
        super().write(text.encode(encoding, "backslashreplace").decode(encoding), style_func, ending)


class ErrorOutput(LineOutput):
    """Writes errors: all lines but the first are indented, so that each message is recognisable."""

    def write(  # type: ignore[override]
        self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None
    ) -> None:
        """Write a message."""
        first, *rest = str(msg).rstrip("\n").split("\n")
        for line in [first, *(f"    {line}" for line in rest)]:
            super().write(line, style_func, ending)


class KwitCommand(BaseCommand):
    """
    Has ``--database`` and ``--json``; prints the result on stdout and everything else on stderr.

    With ``--json`` stdout has one JSON object, of an error as well. An error that the database raises ends with one
    line instead of a traceback.
    """

    #: What ``--database`` is, for the help; and what the app keeps, and the setting that says where.
    database_help = "the database to work on; by default the router chooses it"
    content = ""
    content_setting = ""

    # A command is started each minute: other apps' checks, and the URL configuration that they load, are for ``check``.
    requires_system_checks: tuple[str, ...] = ("kwit", "notify")

    is_json = False
    #: Whether the one JSON object has been written, or begun.
    has_printed = False

    def __init__(self, stdout: Any = None, stderr: Any = None, no_color: bool = False, force_color: bool = False):
        super().__init__(stdout, stderr, no_color, force_color)
        self.stdout = LineOutput(stdout or sys.stdout)
        styled, self.stderr = self.stderr, ErrorOutput(stderr or sys.stderr)
        self.stderr.style_func = styled.style_func

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Declare the two options that every command has."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.add_argument("--database", choices=tuple(connections), metavar="ALIAS", help=self.database_help)
        parser.add_argument("--json", action="store_true", dest="is_json", help="print one JSON object")
        exit_with_usage = parser.error

        def error(message: str) -> NoReturn:
            self.print_error(message)
            exit_with_usage(message)
            raise AssertionError  # for mypy: it never returns

        parser.error = error  # type: ignore[method-assign]
        return parser

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the command's own arguments."""

    def run_from_argv(self, argv: list[str]) -> None:
        """Run from the command line; with ``--json`` a wrong option is one JSON object, too."""
        self.is_json = any(len(given) > 2 and "--json".startswith(given) for given in argv)
        super().run_from_argv(argv)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command. Raises: CommandError, also for what the database or the settings do not allow."""
        if stdout := options.pop("stdout", None):
            self.stdout = LineOutput(stdout)
        if stderr := options.pop("stderr", None):
            self.stderr = ErrorOutput(stderr)
        self.is_json = bool(options.get("is_json"))
        if text := self.elsewhere(options.get("database")):
            self.stderr.write(text)
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            self.print_error(str(error))
            raise
        except (DatabaseError, ImproperlyConfigured) as error:
            refused = CommandError(self.one_line(error, options))
            self.print_error(str(refused))
            raise refused from error

    def one_line(self, error: Exception, options: dict[str, Any]) -> str:
        """Return what the database or the settings refuse as one line."""
        text = " ".join(str(error).split())
        if isinstance(error, ImproperlyConfigured):
            return text
        alias = options.get("database") or self.home()
        return f"database {repr(alias) if alias else 'of the site'}: {text}"

    def home(self) -> str | None:
        """Return the database in which the site keeps what this command works on; None when that is not one."""
        return None

    def elsewhere(self, alias: str | None) -> str:
        """Warn that the site keeps its rows in another database than this one; an empty text when it does not."""
        home = self.home()
        if home is None or alias in (None, home):
            return ""
        return (
            f"Warning: --database {alias}, but this site keeps {self.content} in {home!r} "
            f"({self.content_setting} or a router): those are not the ones worked on here."
        )

    def print_result(self, content: Any, *lines: str) -> None:
        """Print a result: for a program the content as one JSON object, for a person the lines."""
        if self.is_json:
            self.has_printed = True
            self.stdout.write(json.dumps(content, cls=DjangoJSONEncoder))
        else:
            for line in lines:
                self.stdout.write(line)
        self.stdout.flush()

    def print_error(self, text: str) -> None:
        """Print an error for a program, unless the command has printed its object by then."""
        if self.is_json and not self.has_printed:
            self.has_printed = True
            self.stdout.write(json.dumps({"error": text}))

    @contextlib.contextmanager
    def own_stdout(self) -> Iterator[None]:
        """Keep stdout for the one JSON object: what foreign code prints, a mail backend say, goes to stderr."""
        with contextlib.redirect_stdout(sys.stderr) if self.is_json else contextlib.nullcontext():
            yield


def number_from(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``least`` up that a database can keep."""

    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= BIGGEST:
            raise ArgumentTypeError(f"{text} is not from {least} to {BIGGEST}")
        return value

    read.__name__ = "whole number"
    return read


def seconds(text: str) -> float:
    """Read a number of seconds from 0 up."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value
