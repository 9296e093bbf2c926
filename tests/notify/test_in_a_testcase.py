"""A host's own tests: a pass inside the transaction of a TestCase, and what is said without asking for it."""

import pytest
from django.db import transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase

from notify.delivery.runner import deliver_due
from notify.models import Control, MailQueue, Outcome, RunLog
from notify.passes import run_pass
from notify.passes.runner import PassReport
from tests.factories import make_comment, make_contact, make_line, make_order


def comment() -> None:
    make_comment(line=make_line(order=make_order()), recipient=make_contact())


def mails_of(report: PassReport) -> int:
    assert report.outcome == Outcome.OK, report
    return sum(step.mails for step in report.steps)


class HostTests(TestCase):
    """Tests as a host project writes them."""

    def test_a_pass_runs_in_the_transaction_of_the_test(self) -> None:
        comment()

        first, second = run_pass(atomic=True), run_pass(atomic=True)

        assert (first.outcome, mails_of(first), mails_of(second)) == (Outcome.OK, 1, 0)
        assert MailQueue.objects.count() == 1

    def test_it_leaves_nothing_behind(self) -> None:
        assert (MailQueue.objects.count(), Control.objects.count(), RunLog.objects.count()) == (0, 0, 0)

    def test_without_asking_for_it_the_error_says_what_to_do(self) -> None:
        with pytest.raises(TransactionManagementError, match="TransactionTestCase, or pass atomic=True"):
            run_pass()
        with pytest.raises(TransactionManagementError, match="TransactionTestCase"):
            deliver_due()


@pytest.mark.django_db(transaction=True)
def test_what_the_caller_rolls_back_has_not_happened() -> None:
    comment()

    with transaction.atomic():
        assert mails_of(run_pass(atomic=True)) == 1
        transaction.set_rollback(True)

    assert not MailQueue.objects.exists()
    assert mails_of(run_pass()) == 1
    assert mails_of(run_pass(atomic=True)) == 0


@pytest.mark.django_db(transaction=True)
def test_it_works_without_a_transaction_of_the_callers_too() -> None:
    comment()

    assert mails_of(run_pass(atomic=True)) == 1
    assert MailQueue.objects.count() == 1
