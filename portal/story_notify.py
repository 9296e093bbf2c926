"""The notify part of the demo's story: real rows, the real command, and what the run log says of it."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any
from uuid import UUID

from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections, transaction

from notify.dialects import dialect_of
from notify.models import MailQueue, RunLog

from .models import Comment, Contact, Order, OrderLine

#: Who is notified in the demo, and in which language.
PEOPLE = (("Anna", "anna@example.org", "en"), ("Piotr", "piotr@example.org", "pl"), ("Aiko", "aiko@example.org", "ja"))
ITEMS = ("Bolt M8", "Washer M8")


@dataclass(frozen=True)
class NotifyStory:
    """What was played: the two lines, and the four passes by id in the order they ran."""

    lines: tuple[int, int]
    passes: tuple[UUID, UUID, UUID, UUID]


def play_notify(say: Callable[[str], None], *, using: str) -> NotifyStory:
    """
    Play the story's four passes on an order made for it, telling each step and what the run log has of it.

    A database that has other events keeps them: the story counts its own, and the passes prepare all that is due.

    Transaction: its own. Raises: CommandError when a pass fails.
    """
    order, lines = make_order(using=using)
    say(f"Order {order.number} has two lines: {ITEMS[0]} (line {lines[0].pk}) and {ITEMS[1]} (line {lines[1].pk}).")
    comment(lines[0], author="Piotr", to="Anna", body="Can you deliver on Monday?")
    comment(lines[0], author="Piotr", to="Anna", body="Tuesday is fine, too.")
    comment(lines[1], author="Anna", to="Piotr", body="Zinc plated or stainless?")
    say("Three comments on the two lines.")
    first = tell_pass(say, "First pass: one mail for each line, for its newest comment.", lines=lines, using=using)
    second = tell_pass(say, "Second pass: nothing is new.", lines=lines, using=using)
    comment(lines[0], author="Anna", to="Aiko", body="Can the Osaka stock cover it?")
    say("One more comment, on the first line.")
    third = tell_pass(say, "Third pass: one mail for it.", lines=lines, using=using)
    with another_session_holding_the_lock(using=using):
        fourth = tell_pass(
            say, "Fourth pass, while another database session holds the pass lock.", lines=lines, using=using
        )
    return NotifyStory((lines[0].pk, lines[1].pk), (first, second, third, fourth))


def make_order(*, using: str) -> tuple[Order, list[OrderLine]]:
    """Make an order of two lines under a number of its own, and the people if they are not there yet."""
    with transaction.atomic(using=using):
        for name, email, language in PEOPLE:
            Contact.objects.using(using).get_or_create(name=name, defaults={"email": email, "language": language})
        number = Order.objects.using(using).filter(number__startswith="DEMO-").count() + 1
        order = Order.objects.using(using).create(number=f"DEMO-{number}", tenant="acme")
        lines = [
            OrderLine.objects.using(using).create(order=order, tenant="acme", item=item, qty=100) for item in ITEMS
        ]
    return order, lines


def comment(line: OrderLine, *, author: str, to: str, body: str) -> None:
    """Let one person comment on a line to another."""
    Comment.objects.using(line._state.db).create(line=line, author=author, recipient_id=to, body=body)


def tell_pass(say: Callable[[str], None], headline: str, *, lines: Sequence[OrderLine], using: str) -> UUID:
    """Run one pass by its command; tell the story's mails of it and its row in the run log; return its id."""
    say(headline)
    pass_id = UUID(run_command("notify_pass", using=using)["pass_id"])
    keys = [line.pk for line in lines]
    mails = MailQueue.objects.using(using).filter(pass_id=pass_id, control__kind="comment", control__key__in=keys)
    queued = list(mails.order_by("pk"))
    say(f"  {len(queued)} mail{'' if len(queued) == 1 else 's'} queued{':' if queued else '.'}")
    for mail in queued:
        say(f"    to {', '.join(mail.recipients)}: {mail.subject}")
    row = RunLog.objects.using(using).get(pass_id=pass_id, step=RunLog.WHOLE)
    say(f"  run log: outcome {row.outcome}, candidates {row.candidates}, mails {row.mails}, {row.ms} ms")
    if row.error:
        say(f"  run log says: {row.error}")
    return pass_id


def run_command(name: str, *arguments: str, using: str) -> dict[str, Any]:
    """Run a command in this process; return the object it prints. Raises: CommandError when it exits above 0."""
    printed = StringIO()
    try:
        call_command(name, *arguments, "--database", using, "--json", stdout=printed)
    except SystemExit as ended:
        if ended.code:
            raise CommandError(f"{name} ended with exit code {ended.code}: {printed.getvalue()}") from ended
    answer: dict[str, Any] = json.loads(printed.getvalue())
    return answer


@contextlib.contextmanager
def another_session_holding_the_lock(*, using: str) -> Iterator[None]:
    """Hold the pass lock in a second session of the same database, as a pass on another machine would."""
    with contextlib.closing(connections[using].copy()) as second:
        dialect = dialect_of(second)
        answer = dialect.try_lock(second)
        if not answer.is_granted:
            who = answer.holder.english if answer.holder else "unknown session"
            raise CommandError(f"another pass is running on this database ({who})")
        try:
            yield
        finally:
            dialect.unlock(second, answer.token)
