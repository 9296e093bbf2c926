"""
How long other queues take for the same mails. Runs in an environment of its own (requirements/bench.txt).

``python -m benchmarks.references.queues post_office|mailer MAILS PORT`` with DATABASE_URL; prints the seconds. Reads
(subject, text, html) from stdin as JSON: the same message for every mail.
"""

import json
import os
import sys
import time

import environ


def configure(port: int) -> None:
    """Set Django up with both queues on the database of the environment, one worker each."""
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
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
        EMAIL_BACKEND="mailer.backend.DbBackend",
        EMAIL_HOST="127.0.0.1",
        EMAIL_PORT=port,
        MAILER_EMAIL_BACKEND="django.core.mail.backends.smtp.EmailBackend",
        MAILER_USE_FILE_LOCK=False,
        POST_OFFICE={
            "BACKENDS": {"default": "django.core.mail.backends.smtp.EmailBackend"},
            "BATCH_SIZE": 100,
            "THREADS_PER_PROCESS": 1,
        },
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def post_office(mails: int, subject: str, text: str, html: str) -> float:
    """Queue mails with django-post_office; return the seconds that sending them takes."""
    from post_office import mail
    from post_office.mail import send_queued
    from post_office.models import Email

    for number in range(mails):
        mail.send(f"u{number}@example.org", "kwit@example.org", subject=subject, message=text, html_message=html)
    started = time.perf_counter()
    while Email.objects.filter(status=0).count() < mails:
        send_queued(processes=1, log_level=2)
    taken = time.perf_counter() - started
    Email.objects.all().delete()
    return taken


def mailer(mails: int, subject: str, text: str, html: str) -> float:
    """Queue mails with django-mailer; return the seconds that sending them takes."""
    from django.core.mail import EmailMultiAlternatives
    from mailer.engine import send_all
    from mailer.models import Message, MessageLog

    for number in range(mails):
        message = EmailMultiAlternatives(subject, text, "kwit@example.org", [f"u{number}@example.org"])
        message.attach_alternative(html, "text/html")
        message.send()
    started = time.perf_counter()
    send_all()
    taken = time.perf_counter() - started
    assert not Message.objects.exists()
    MessageLog.objects.all().delete()
    return taken


def main() -> None:
    """Measure one queue."""
    name, mails, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    subject, text, html = json.load(sys.stdin)
    configure(port)
    queue = {"post_office": post_office, "mailer": mailer}[name]
    queue(min(mails, 50), subject, text, html)
    print(queue(mails, subject, text, html))


if __name__ == "__main__":
    main()
