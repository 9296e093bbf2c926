"""Play the demo's story and serve the admin."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ... import demo


class Command(BaseCommand):
    """Set up a database, play the story on real rows, then serve the admin until Ctrl-C."""

    # Checks may open the database, and which one that is has yet to be decided; migrate and runserver check.
    requires_system_checks = ()

    help = "Set up a database, play the story on real rows, then serve the admin until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare what ``make demo`` passes on."""
        parser.add_argument("--serve", type=int, choices=[0, 1], default=1, help="0 ends after the story")
        parser.add_argument("--port", type=int, default=8000, help="where the admin listens (8000)")

    def handle(self, *, serve: int, port: int, **options: Any) -> None:
        """Play, then serve."""
        if serve:
            # Asked first: a demo that is still serving would lose its database file to this one.
            demo.check_port(port)
        demo.set_up(self.say)
        demo.play(self.say)
        demo.make_groups(self.say)
        self.say(f"\nThe admin's user is {demo.USER} with the password {demo.make_user()}")
        if serve:
            self.say(f"Serving the admin on http://{demo.HOST}:{port}/ until Ctrl-C")
            demo.serve(port=port)

    def say(self, text: str) -> None:
        """Print a line at once, also into a pipe."""
        self.stdout.write(text)
        self.stdout.flush()
