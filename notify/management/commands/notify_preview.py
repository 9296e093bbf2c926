"""Show an event's mail as its recipients get it."""

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError

from ...errors import NotifyError
from ...operations.preview import Preview, preview_example, preview_key
from ..command import NotifyCommand


class Command(NotifyCommand):
    """Show an event's mail: the queued one, what a pass would queue now, or the kind's example."""

    help = "Show an event's mail as its recipients get it; without KEY the kind's example."
    database_help = "the database to read"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("kind", metavar="KIND")
        parser.add_argument("key", nargs="?", metavar="KEY")
        parser.add_argument("key2", nargs="?", metavar="KEY2")
        parser.add_argument("--language", default="", metavar="CODE", help="as if the recipient spoke this language")
        parser.add_argument(
            "--file", action="store_true", dest="is_file", help="as the files say it, whatever was written on the page"
        )
        parser.add_argument("--html", action="store_true", dest="is_html", help="print the HTML body only")

    def handle(self, *, kind: str, key: str | None, is_html: bool, **options: Any) -> None:
        """Preview."""
        language, using = options["language"], options["database"]
        try:
            if key is None:
                found = [preview_example(kind, language=language, using=using, is_file=options["is_file"])]
            else:
                found = preview_key(
                    kind=kind,
                    key=key,
                    key2=options["key2"],
                    language=language,
                    using=using,
                    is_file=options["is_file"],
                )
        except NotifyError as error:
            raise CommandError(str(error)) from error
        except DatabaseError:
            raise  # said by NotifyCommand
        except Exception as error:
            # A template raises whatever it likes, and of a kind without a body nothing can be shown.
            raise CommandError(f"the mail cannot be made: {type(error).__name__}: {error}") from error
        shown = [(each.html if is_html else as_text(each)).split("\n") for each in found]
        self.print_result({"mails": [asdict(each) for each in found]}, *(line for lines in shown for line in lines))


def as_text(preview: Preview) -> str:
    """Return a preview for a terminal."""
    headers = {
        "From": preview.sender,
        "To": ", ".join(preview.recipients) or "nobody",
        "Cc": ", ".join(preview.cc),
        "Bcc": ", ".join(preview.bcc),
        "Subject": preview.subject,
        **preview.headers,
        "Attachments": ", ".join(preview.attachments),
    }
    lines = "".join(f"{name}: {value}\n" for name, value in headers.items() if value)
    return f"[{preview.source}]\n{lines}\n{preview.text}"
