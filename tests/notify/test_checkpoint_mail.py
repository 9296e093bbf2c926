"""Checkpoints of sealed receipts by mail: the step that docs/sealed-receipts.md shows."""

import re
from pathlib import Path

import pytest

from notify.models import MailQueue
from notify.passes.runner import run_pass
from receipts.models import Checkpoint
from receipts.sealing.seal import seal_receipts
from tests.crashing import ROOT
from tests.factories import make_line
from tests.receipts.plain import cancel, target

pytestmark = pytest.mark.django_db(transaction=True)


def snippet() -> str:
    """Return the code of the page."""
    text = Path(ROOT / "docs/sealed-receipts.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"```python\n(.*?)```", text, re.S)
    return found


def test_the_step_of_the_docs_mails_one_checkpoint_a_day(add_step, write_template, settings):
    settings.RECEIPTS = {}
    exec(compile(snippet(), "docs/sealed-receipts.md", "exec"), {})
    write_template("mail/sealed.subject.txt", "Checkpoint of {{ size }} receipts")
    write_template("mail/sealed.body.txt", "{{ note }}")
    for number in range(2):
        cancel(target(make_line()), change_id=f"CHG-{number}")
        seal_receipts()

    assert run_pass().outcome == "ok"
    run_pass()

    mail = MailQueue.objects.get()
    assert (mail.subject, mail.control.key) == ("Checkpoint of 1 receipts", 1)
    assert Checkpoint.objects.count() == 2  # the second was not a full scan
