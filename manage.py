#!/usr/bin/env python
"""Kwit's command line."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    """Run a command; a setting that is wrong is one line, unless ``--traceback`` asks where it was found."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        if "--traceback" in sys.argv:
            raise
        sys.exit(f"The settings are wrong: {error}")


if __name__ == "__main__":
    main()
