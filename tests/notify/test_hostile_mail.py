"""Ten thousand subjects, names and addresses that wish us ill."""

import email
import email.policy

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from notify.addresses import parse_recipients
from notify.conf import Conf
from notify.delivery.email import make_email
from notify.delivery.runner import deliver_due
from notify.messages.bodies import Body
from notify.models import Control, MailQueue
from notify.transports.smtp import SmtpOptions, SmtpTransport
from tests.mails import COMMENT, PAST

pytestmark = pytest.mark.django_db(transaction=True)

MAILS, QUEUED, BATCH = 10_000, 1_000, 250
#: All that our headers and the body's may be called; anything else was injected.
HEADERS = {
    "content-type",
    "content-transfer-encoding",
    "mime-version",
    "from",
    "to",
    "subject",
    "message-id",
    "date",
    "auto-submitted",
    "list-unsubscribe",
}
PIECES = st.sampled_from(
    [
        "\r\nBcc: x@evil.example",
        "\nX-Evil: 1",
        "\r\n\r\n<script>alert(1)</script>",
        "\r\n.\r\nMAIL FROM:<x@evil.example>",
        "=?utf-8?q?=0D=0ABcc:_x=40evil.example?=",
        "\u2028Bcc: x@evil.example",
        "\x85",
        "\x0b",
        "\x1b[31m",
        "\u202e",
        "\ufeff",
        "=?",
        "?=",
        "Ж" * 60,
        "日本語" * 30,
        "🙂",
        "👩‍👩‍👧",
        " " * 80,
        "x" * 200,
        "{{ 7|add:7 }}",
        "%s%n",
        "<a href='https://evil.example'>",
        "“",
        '"',
        "\\",
    ]
)
HOSTILE = st.lists(PIECES | st.text(max_size=12), min_size=1, max_size=4).map("".join)
ADDRESS = st.one_of(
    st.just("ok@example.org"),
    HOSTILE,
    HOSTILE.map(lambda name: f'"{name}" <ok@example.org>'),
    HOSTILE.map(lambda name: f"{name} <ok@example.org>"),
    HOSTILE.map(lambda local: f"{local}@example.org"),
    HOSTILE.map(lambda domain: f"ok@{domain}"),
    st.sampled_from(["ok@żółw.example", "ok@日本.example", "'@example.org", "a@b", "ok@[127.0.0.1]", "-@example.org"]),
)
ONE = st.tuples(HOSTILE, ADDRESS, HOSTILE)


class Inspecting(SmtpTransport):
    """Composes as for a server, then looks at what would have gone over the wire."""

    def __init__(self):
        super().__init__(SmtpOptions())
        self.seen = 0

    def open(self):
        """Need no server."""

    def send(self, letter, packed, *, give_up_at):
        from notify.models import AttemptOutcome
        from notify.transports.base import Reply, same_for_all

        check_wire(packed, is_thorough=self.seen % 50 == 0)
        for recipient in letter.recipients:
            assert not set(recipient) & set("\r\n <>")
        self.seen += 1
        return same_for_all(letter.recipients, AttemptOutcome.SENT, Reply(250))


def check_wire(packed: bytes, *, is_thorough: bool = False) -> None:
    """Make sure that a message has our headers only, in lawful lines; thoroughly: as a mail client sees it."""
    text = packed.decode("ascii")
    lines = text.split("\r\n")
    assert not {"\r", "\n"} & set("".join(lines))
    assert max(map(len, lines)) <= 998
    head = text.partition("\r\n\r\n")[0]
    names = [line.partition(":")[0].lower() for line in head.split("\r\n") if line[:1] not in " \t"]
    assert set(names) <= HEADERS
    assert len(names) == len(set(names))
    if is_thorough:
        parsed = email.message_from_bytes(packed, policy=email.policy.compat32)
        assert {name.lower() for part in parsed.walk() for name in part} <= HEADERS
        kinds = [part.get_content_type() for part in parsed.walk()]
        assert kinds in (["text/plain"], ["multipart/alternative", "text/plain", "text/html"])


def storable(text: str) -> str:
    """Return the text as PostgreSQL can store it: rows written by plain SQL have neither of these."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def hostile(count, size, use):
    """Call ``use`` with lists of ``size`` hostile (subject, address, body) until there were ``count``."""

    @settings(
        max_examples=count // size,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(ONE, min_size=25, max_size=25))
    def run(pool):
        use(list(mixed(pool, size)))

    run()


def test_a_thousand_hostile_mails_do_not_stop_the_queue():
    transport, told, made = Inspecting(), {"sent": 0, "blocked": 0}, []

    def deliver(mails):
        write_rows([(subject[:120], address, body) for subject, address, body in mails], first=len(made) + 1)
        made.extend(mails)
        report = deliver_due(transport=transport)
        assert report.uncertain == report.failed == report.retried == 0
        assert not report.error
        told["sent"] += report.sent + report.partial
        told["blocked"] += report.blocked

    hostile(QUEUED, BATCH, deliver)

    assert sum(told.values()) == len(made) >= QUEUED
    assert told["sent"] == transport.seen > QUEUED // 10
    assert not MailQueue.objects.filter(state__in=("queued", "sending")).exists()


def test_ten_thousand_hostile_mails_reach_no_header():
    transport, seen = Inspecting(), {"sent": 0, "refused": 0}
    control = Control(kind="comment", key=1, key2=0)

    def pack(mails):
        for subject, address, body in mails:
            found = parse_recipients([address]).good
            mail = MailQueue(control=control, subject=subject, language="en")
            parts = {"part": 0, "token": "t0ken", "to": found, "recipients": found}
            letter = make_email(mail, body=Body(body, body), **parts, at=PAST, conf=Conf())
            transport.send(letter, transport.pack(letter), give_up_at=0)
            seen["sent" if found else "refused"] += 1

    hostile(MAILS, BATCH, pack)

    assert sum(seen.values()) >= MAILS
    assert min(seen.values()) > MAILS // 10


def mixed(pool, size):
    """Yield combinations of a pool's subjects with its addresses, up to a batch."""
    for shift in range(size // len(pool)):
        for place, (subject, _, body) in enumerate(pool):
            yield storable(subject), storable(pool[(place + shift) % len(pool)][1]), storable(body)


def write_rows(rows, *, first):
    """Write queue rows as plain SQL might: nothing has been cleaned, shortened or checked."""
    keys = range(first, first + len(rows))
    Control.objects.bulk_create(Control(kind="comment", key=key, key2=0, language="", recipients="") for key in keys)
    controls = Control.objects.filter(kind="comment", key__gte=first).order_by("key")
    MailQueue.objects.bulk_create(
        MailQueue(
            control=control,
            template="comment",
            subject=subject,
            recipients=[address],
            language="en",
            payload=COMMENT | {"body": body, "author": subject},
            due_at=PAST,
            state="queued",
            problem="",
            attempts=0,
            worker="",
            held_for="",
            message_text="",
            message_html="",
            operator="",
            created_at=PAST,
        )
        for control, (subject, address, body) in zip(controls, rows, strict=True)
    )
