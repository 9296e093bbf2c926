"""Play the demo's story and serve the admin."""

import sys
from argparse import ArgumentParser
from typing import Any

from kwit.commands import KwitCommand

from ... import demo


class Command(KwitCommand):
    """Set up a database, play the story on real rows, then serve the admin until Ctrl-C."""

    # Checks may open the database, and which one that is has yet to be decided; migrate and runserver check.
    requires_system_checks = ()

    help = "Set up a database, run the scripted example on it, then serve the admin until Ctrl-C."
    database_help = "the database to use"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare what ``make demo`` passes on."""
        parser.add_argument("--serve", type=int, choices=[0, 1], default=1, help="0 ends after the example")
        parser.add_argument("--port", type=int, default=8000, help="where the admin listens (8000)")

    def handle(self, *, serve: int, port: int, database: str | None, is_json: bool, **options: Any) -> None:
        """Play, then serve; with ``--json`` what is told on the way goes to stderr."""
        say = self.whisper if is_json else self.say
        if serve:
            # Asked first: a demo that is still serving would lose its database file to this one.
            demo.check_port(port)
        demo.set_up(say)
        demo.play(say, using=database)
        demo.make_groups(say)
        password, url = demo.make_user(), f"http://{demo.HOST}:{port}/"
        say(f"\nThe admin's user is {demo.USER} with the password {password}")
        if is_json:
            told = {"databases": demo.names(), "user": demo.USER, "password": password, "url": url if serve else None}
            self.print_result(told)
        if serve:
            say(f"Serving the admin on {url} until Ctrl-C")
            demo.serve(port=port, stdout=sys.stderr if is_json else sys.stdout)

    def say(self, text: str) -> None:
        """Print a line at once, also into a pipe."""
        for line in text.split("\n"):
            self.stdout.write(line)
        self.stdout.flush()

    def whisper(self, text: str) -> None:
        """Print a line beside the output."""
        self.stderr.write(text)
        self.stderr.flush()
