"""
Mails per second, to a sink on loopback and to one that answers 20 ms late, as a relay elsewhere does.

References: building the same text and HTML message, with Kwit's templates and the standard library's ``EmailMessage``,
and ``smtplib.sendmail`` in a bare loop on one connection; one lane of our own; and django-post_office and django-mailer
with the same mails, which promise less: they keep no answer per recipient, and a crash repeats or loses mails.
django-post_office renders at delivery too (``render_on_delivery``), from the same templates, with as many threads as
the figure says (5 is its default); with mails rendered before it is for information.
"""

import contextlib
import json
import os
import smtplib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.harness import Figure, seconds

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "templates" / "notify" / "mail"
MAILS = 1000
ROUNDS = 3
LATE_MS = 20
#: How often fewer mails one lane gets from the late server, which takes it 1/24 second each.
ONE_LANE_PART = 4

VALUES = {
    "author": "Aiko",
    "body": "When will it ship? We need it on site by Friday, at gate 3.\n" * 6,
    "item": "Bolt M8",
    "number": "PO-4711",
}


@contextlib.contextmanager
def sink(*, late_ms: int = 0) -> Iterator[int]:
    """Run the server in a process of its own; yield its port."""
    command = [sys.executable, "-m", "benchmarks.references.smtp_sink", str(late_ms)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def queue(count: int) -> None:
    """Queue mails as a pass would."""
    from notify.models import Attempt, Control, MailQueue

    Attempt.objects.all().delete()
    MailQueue.objects.all().delete()
    Control.objects.all().delete()
    Control.objects.bulk_create(
        Control(kind="comment", key=number, key2=0, language="en", recipients="") for number in range(count)
    )
    defaults = {"state": "queued", "problem": "", "attempts": 0, "worker": "", "held_for": "", "operator": ""}
    MailQueue.objects.bulk_create(
        MailQueue(
            control=control,
            template="comment",
            subject="Order PO-4711, Bolt M8: new comment by Aiko",
            recipients=[f"u{number}@example.org"],
            language="en",
            payload=VALUES,
            message_text="",
            message_html="",
            **defaults,
        )
        # Asked for, because bulk_create tells no ids on SQL Server.
        for number, control in enumerate(Control.objects.order_by("key"))
    )


def bare(mails: list, port: int) -> None:
    """Build each message from its templates and send it, nothing else."""
    from datetime import UTC, datetime
    from email.message import EmailMessage
    from email.policy import SMTP

    from notify.conf import Conf
    from notify.delivery.email import make_email, render_mail

    conf = Conf()
    with smtplib.SMTP("127.0.0.1", port) as connection:
        for mail in mails:
            to = tuple(mail.recipients)
            email = make_email(
                mail,
                body=render_mail(mail),
                part=0,
                to=to,
                recipients=to,
                at=datetime.now(UTC),
                token=f"{mail.pk:032x}",
                conf=conf,
            )
            message = EmailMessage(policy=SMTP)
            message["From"], message["To"], message["Subject"] = email.sender, ", ".join(to), email.subject
            for name, value in email.headers:
                message[name] = value
            message.set_content(email.text)
            message.add_alternative(email.html, subtype="html")
            connection.sendmail(email.sender, to, message.as_bytes())


def deliver(port: int, lanes: int) -> int:
    """Deliver what is queued; return how many mails were sent."""
    from notify.delivery.runner import deliver_due
    from notify.transports.smtp import SmtpOptions, SmtpTransport

    options = SmtpOptions(host="127.0.0.1", port=port)
    report = deliver_due(make_transport=lambda: SmtpTransport(options), lanes=lanes)
    assert report.letters == report.sent > 0, report
    return report.sent


def ours(count: int, port: int, lanes: int) -> float:
    """Queue mails and deliver them in one worker; return the mails per second."""
    queue(count)
    sent: list[int] = []
    taken = seconds(lambda: sent.append(deliver(port, lanes)))
    assert sent == [count]
    return count / taken


def workers(number: int, count: int, port: int, lanes: int) -> float:
    """Queue mails and deliver them in several worker processes; return the mails per second."""
    from django.db import connections

    from notify.models import MailQueue

    queue(count)
    queued = MailQueue.objects.count()
    connections.close_all()
    started = time.perf_counter()
    children = []
    for _ in range(number):
        if (pid := os.fork()) == 0:
            with contextlib.suppress(AssertionError):
                deliver(port, lanes)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    taken = time.perf_counter() - started
    assert MailQueue.objects.filter(state="sent").count() == queued == count
    return count / taken


def others(name: str, count: int, port: int, threads: int = 1) -> float | None:
    """Return the mails per second of another queue; None where its environment has not been made (make bench does)."""
    python = Path(os.environ.get("KWIT_BENCH_PYTHON", ROOT / f"{Path(sys.prefix).name}-bench" / "bin" / "python"))
    if not python.exists():
        print(f"  ({name} is not measured: {python} does not exist)", file=sys.stderr)
        return None
    if "mssql" in os.environ["DATABASE_URL"].partition(":")[0]:
        print(f"  ({name} is not measured: it is not made for SQL Server)", file=sys.stderr)
        return None
    from notify.messages.bodies import render_body

    body = render_body("comment", VALUES, language="en")
    given = {
        "subject": "Order PO-4711, Bolt M8: new comment by Aiko",
        "text_source": (TEMPLATES / "comment.body.txt").read_text(),
        "html_source": (TEMPLATES / "comment.body.html").read_text(),
        "values": VALUES,
        "text": body.text,
        "html": body.html,
    }
    done = subprocess.run(
        [str(python), "-m", "benchmarks.references.queues", name, str(count), str(port), str(threads)],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return count / float(done.stdout)


@dataclass(frozen=True)
class Entry:
    """Somebody who is measured: what it is called, and how many mails per second it sends."""

    name: str
    measure: Callable[[], float | None]


@dataclass(frozen=True)
class Promise:
    """What is compared with what."""

    ours: str
    reference: str
    bar: str | None


def compare(entries: Sequence[Entry], promises: Sequence[Promise]) -> Iterator[Figure]:
    """Measure everybody in each round, so that all see the same machine; yield rates and ratios."""
    rates: dict[str, list[float]] = {entry.name: [] for entry in entries}
    for _ in range(ROUNDS):
        for entry in entries:
            if (rate := entry.measure()) is not None:
                rates[entry.name].append(rate)
    for name in rates:
        if rates[name]:
            yield Figure(name, median(rates[name]), "mails/s")
    for promise in promises:
        mine, theirs = rates[promise.ours], rates[promise.reference]
        if mine and theirs:
            ratio = median(own / other for own, other in zip(mine, theirs, strict=True))
            yield Figure(promise.ours, median(mine), "mails/s", promise.reference, ratio, promise.bar)


def run(vendor: str, scale: float) -> Iterable[Figure]:
    """Yield mails per second, ours and theirs, on loopback and to a late server."""
    from notify.models import MailQueue

    count = max(50, int(MAILS * scale))
    with sink() as port:
        queue(count)
        mails = list(MailQueue.objects.select_related("control"))
        bare(mails[:50], port)
        entries = [
            Entry(
                "bare loop: build, smtplib.sendmail, one connection", lambda: count / seconds(lambda: bare(mails, port))
            ),
            Entry("notify_deliver, 8 lanes", lambda: ours(count, port, 8)),
            Entry("notify_deliver, 1 lane", lambda: ours(count, port, 1)),
            Entry("django-post_office, 5 threads", lambda: others("post_office", count, port, 5)),
            Entry("django-post_office, 1 thread", lambda: others("post_office", count, port, 1)),
            Entry(
                "django-post_office, 5 threads, rendered before", lambda: others("post_office_ready", count, port, 5)
            ),
            Entry("django-mailer", lambda: others("mailer", count, port)),
        ]
        yield from compare(
            entries,
            [
                Promise("notify_deliver, 8 lanes", entries[0].name, ">= 0.6"),
                Promise("notify_deliver, 8 lanes", "django-post_office, 5 threads", ">= 1.3"),
                Promise("notify_deliver, 8 lanes", "notify_deliver, 1 lane", ">= 1.0"),
                Promise("notify_deliver, 8 lanes", "django-post_office, 5 threads, rendered before", None),
                Promise("notify_deliver, 8 lanes", "django-mailer", None),
            ],
        )
    is_promised = vendor == "postgresql"
    with sink(late_ms=LATE_MS) as port:
        late = f"answers {LATE_MS} ms late: "
        entries = [
            Entry(f"{late}1 lane", lambda: ours(max(25, count // ONE_LANE_PART), port, 1)),
            Entry(f"{late}8 lanes", lambda: ours(count, port, 8)),
            Entry(f"{late}32 lanes", lambda: ours(count, port, 32)),
            Entry(f"{late}2 workers of 8 lanes", lambda: workers(2, count, port, 8)),
            Entry(f"{late}django-post_office, 8 threads", lambda: others("post_office", count, port, 8)),
            Entry(f"{late}django-post_office, 5 threads", lambda: others("post_office", count, port, 5)),
        ]
        yield from compare(
            entries,
            [
                Promise(f"{late}8 lanes", f"{late}django-post_office, 8 threads", ">= 1.5" if is_promised else None),
                Promise(f"{late}8 lanes", f"{late}django-post_office, 5 threads", None),
                Promise(f"{late}8 lanes", f"{late}1 lane", ">= 7" if is_promised else None),
                Promise(f"{late}32 lanes", f"{late}1 lane", ">= 20" if is_promised else None),
                Promise(f"{late}2 workers of 8 lanes", f"{late}8 lanes", ">= 1.7" if is_promised else None),
            ],
        )
