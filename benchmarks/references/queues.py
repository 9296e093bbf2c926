"""
How long other queues take for the same mails. Runs in an environment of its own (requirements/bench.txt).

``python -m benchmarks.references.queues post_office|post_office_ready|mailer MAILS PORT THREADS`` with DATABASE_URL;
prints the seconds; only django-post_office has threads. Reads a `Given` from stdin as JSON: the same message for all.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import environ

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Given:
    """The mail: its subject, the sources of its templates with the values for them, and what they make of them."""

    subject: str
    text_source: str
    html_source: str
    values: dict[str, str]
    text: str
    html: str


def configure(port: int, threads: int) -> None:
    """Set Django up with both queues on the database of the environment, one worker process each."""
    import django
    from django.conf import settings

    database = dict(environ.Env().db_url_config(os.environ["DATABASE_URL"]))
    if "sqlite3" in database["ENGINE"]:
        # The same durability and patience as Kwit's.
        database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        }
    settings.configure(
        SECRET_KEY="bench",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DATABASES={"default": database},
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "post_office", "mailer"],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "DIRS": [ROOT / "templates", ROOT / "notify" / "templates"],
                "APP_DIRS": True,
            }
        ],
        EMAIL_BACKEND="mailer.backend.DbBackend",
        EMAIL_HOST="127.0.0.1",
        EMAIL_PORT=port,
        MAILER_EMAIL_BACKEND="django.core.mail.backends.smtp.EmailBackend",
        MAILER_USE_FILE_LOCK=False,
        POST_OFFICE={
            "BACKENDS": {"default": "django.core.mail.backends.smtp.EmailBackend"},
            "BATCH_SIZE": 100,
            "THREADS_PER_PROCESS": threads,
        },
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def post_office(mails: int, given: Given) -> float:
    """Queue mails with django-post_office, to be rendered at delivery as Kwit's are; return the seconds of sending."""
    from post_office.models import EmailTemplate

    template, _ = EmailTemplate.objects.get_or_create(
        name="comment", subject=given.subject, content=given.text_source, html_content=given.html_source
    )
    return send_queued(mails, template=template, context=given.values, render_on_delivery=True)


def post_office_ready(mails: int, given: Given) -> float:
    """Queue mails with django-post_office that are rendered already; return the seconds that sending them takes."""
    return send_queued(mails, subject=given.subject, message=given.text, html_message=given.html)


def send_queued(mails: int, **message: object) -> float:
    """Queue one message to many; return the seconds that django-post_office takes to send it to all."""
    from post_office import mail
    from post_office.models import Email

    for number in range(mails):
        mail.send(f"u{number}@example.org", "kwit@example.org", **message)
    started = time.perf_counter()
    while Email.objects.filter(status=0).count() < mails:
        mail.send_queued(processes=1, log_level=2)
        assert not Email.objects.filter(status=1).exists(), (
            "a mail that cannot be rendered would be waited for for ever"
        )
    taken = time.perf_counter() - started
    Email.objects.all().delete()
    return taken


def mailer(mails: int, given: Given) -> float:
    """Queue mails with django-mailer, which takes rendered ones only; return the seconds that sending them takes."""
    from django.core.mail import EmailMultiAlternatives
    from mailer.engine import send_all
    from mailer.models import Message, MessageLog

    for number in range(mails):
        message = EmailMultiAlternatives(given.subject, given.text, "kwit@example.org", [f"u{number}@example.org"])
        message.attach_alternative(given.html, "text/html")
        message.send()
    started = time.perf_counter()
    send_all()
    taken = time.perf_counter() - started
    assert not Message.objects.exists()
    MessageLog.objects.all().delete()
    return taken


def main() -> None:
    """Measure one queue."""
    name, (mails, port, threads) = sys.argv[1], map(int, sys.argv[2:5])
    given = Given(**json.load(sys.stdin))
    configure(port, threads)
    queue = {"post_office": post_office, "post_office_ready": post_office_ready, "mailer": mailer}[name]
    queue(min(mails, 50), given)
    print(queue(mails, given))


if __name__ == "__main__":
    main()
