"""
Mails per second to a loopback sink, one worker, a commit per mail.

References: building the same text and HTML message, with Kwit's templates and the standard library's ``EmailMessage``,
and ``smtplib.sendmail`` in a bare loop on one connection; and django-post_office and django-mailer with the same mails,
which promise less: they keep no answer per recipient, and a crash repeats or loses mails. django-post_office renders at
delivery too (``render_on_delivery``), from the same templates; with mails rendered before it is for information.
"""

import contextlib
import json
import os
import smtplib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

from benchmarks.harness import Figure, seconds

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "templates" / "notify" / "mail"
MAILS = 1000
ROUNDS = 3
#: What is asked of `benchmarks.references.queues`, and what it is called.
NAMES = {
    "post_office": "django-post_office",
    "mailer": "django-mailer",
    "post_office_ready": "django-post_office, rendered before",
}
VALUES = {
    "author": "Aiko",
    "body": "When will it ship? We need it on site by Friday, at gate 3.\n" * 6,
    "item": "Bolt M8",
    "number": "PO-4711",
}


@contextlib.contextmanager
def sink() -> Iterator[int]:
    """Run the server in a process of its own; yield its port."""
    command = [sys.executable, "-m", "benchmarks.references.smtp_sink"]
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
            letter = make_email(
                mail, body=render_mail(mail), part=0, to=to, recipients=to, at=datetime.now(UTC), conf=conf
            )
            message = EmailMessage(policy=SMTP)
            message["From"], message["To"], message["Subject"] = letter.sender, ", ".join(to), letter.subject
            for name, value in letter.headers:
                message[name] = value
            message.set_content(letter.text)
            message.add_alternative(letter.html, subtype="html")
            connection.sendmail(letter.sender, to, message.as_bytes())


def ours(port: int) -> float:
    """Deliver what is queued; return the seconds."""
    from notify.delivery.runner import deliver_due
    from notify.transports.smtp import SmtpOptions, SmtpTransport

    report = []
    taken = seconds(
        lambda: report.append(deliver_due(transport=SmtpTransport(SmtpOptions(host="127.0.0.1", port=port))))
    )
    assert report[0].letters == report[0].sent > 0, report
    return taken


def others(name: str, count: int, port: int) -> float | None:
    """Return the seconds of another queue; None where its environment has not been made (make bench makes it)."""
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
        [str(python), "-m", "benchmarks.references.queues", name, str(count), str(port)],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return float(done.stdout)


def run(vendor: str, scale: float) -> Iterable[Figure]:
    """Yield mails per second, ours and theirs; each round measures everybody, so that all see the same machine."""
    from notify.models import MailQueue

    count, names = max(50, int(MAILS * scale)), list(NAMES)
    loops, mine = [], []
    theirs: dict[str, list[float]] = {name: [] for name in names}
    with sink() as port:
        queue(count)
        mails = list(MailQueue.objects.select_related("control"))
        bare(mails[:50], port)
        for _ in range(ROUNDS):
            loops.append(seconds(lambda: bare(mails, port)))
            queue(count)
            mine.append(ours(port))
            for name in names:
                taken = others(name, count, port)
                theirs[name] += [] if taken is None else [taken]
    yield Figure("bare loop: build, smtplib.sendmail, one connection", count / median(loops), "mails/s")
    for name in names:
        if theirs[name]:
            yield Figure(f"{NAMES[name]}, one worker", count / median(theirs[name]), "mails/s")
    rate = count / median(mine)
    ratio = median(loop / own for loop, own in zip(loops, mine, strict=True))
    yield Figure("notify_deliver, one worker, a commit per mail", rate, "mails/s", "bare loop", ratio, ">= 0.6")
    if all(theirs.values()):
        better = min(("post_office", "mailer"), key=lambda each: median(theirs[each]))
        for name, bar in ((better, ">= 1.3"), ("post_office_ready", None)):
            ratio = median(other / own for other, own in zip(theirs[name], mine, strict=True))
            yield Figure("the same", rate, "mails/s", NAMES[name], ratio, bar)
