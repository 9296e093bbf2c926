"""What the API lists: the names of its resources, and rows of all of them."""

from typing import Any

from kwit.api.resources import Resource, _registered
from kwit.models import Action
from notify.models import Attempt, Channel, Control, MailQueue, Suppression, TaskQueue
from receipts.api import Target, cancel_many
from receipts.models import Change, Reconciliation, StoredPlan
from tests.browser.story import HELD
from tests.factories import NOW, make_line
from tests.mails import log

NAMES = sorted(_registered)
LISTS = sorted(name for name, source in _registered.items() if isinstance(source, Resource))
EVIL = "<script>alert(1)</script>\u2028"


def make_mail(key: int = 1, **fields: Any) -> MailQueue:
    control = Control.objects.create(kind="comment", key=key, key2=2**63 - 1)
    values = {"subject": EVIL, "recipients": ["a@example.org"], "due_at": NOW} | fields
    return MailQueue.objects.create(control=control, **values)


def make_receipt(change_id: str = "CHG-1", *, tenant: str = "acme") -> str:
    line = make_line(tenant=tenant)
    cancel_many(change_id=change_id, tenant=tenant, targets=[Target(id=line.pk, revision=4, qty=10)])
    return change_id


def fill(n: int) -> None:
    """Make n rows of everything."""
    for number in range(1, n + 1):
        run = log(minute=number)
        log("comment", pass_id=run.pass_id, minute=number)
        log(minute=number, outcome="skipped", said=[HELD])
        mail = make_mail(number)
        Attempt.objects.create(mail=mail, number=1, recipient="a@example.org", outcome="sent", code=250)
        TaskQueue.objects.create(control=mail.control, title="t")
        Channel.objects.create(name=f"smtp{number}")
        Suppression.objects.create(address=f"a{number}@example.org")
        Action.objects.create(actor="ann", name="retry", subject="notify.mailqueue", tenant="acme")
        change = Change.objects.create(change_id=f"C{number}", kind="cancel", tenant="acme", targets=[], digest="x")
        Reconciliation.objects.create(change=change, tenant="acme", match=1, changed=0, missing=0, items=[])
        StoredPlan.objects.create(
            change_id=f"P{number}", kind="cancel", tenant="acme", targets=[], digest="x", author="ann"
        )
