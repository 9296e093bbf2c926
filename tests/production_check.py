"""Run ``manage.py check --deploy`` on the settings a production site would have; exit 1 on any finding."""

import os
import secrets
import sys

from django.core.management import execute_from_command_line


def main() -> int:
    """Set up the environment of a production site and check it."""
    os.environ.update(
        DJANGO_SETTINGS_MODULE="config.settings",
        DEBUG="0",
        SECRET_KEY=secrets.token_urlsafe(64),
        ALLOWED_HOSTS="kwit.example.org",
    )
    execute_from_command_line(["manage.py", "check", "--deploy", "--fail-level", "WARNING"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
