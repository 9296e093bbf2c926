"""Whose an event is: its tenant stands on each of its rows, and a faulty one stops nothing else."""

from typing import Any

import pytest
from django.db.models import CharField, F, Value

from notify.models import Control, MailQueue, TaskQueue
from tests.factories import NOW, make_advice, make_comment, make_contact, make_line, make_order
from tests.notify.samples import Remark, do_pass, make_comments

pytestmark = pytest.mark.django_db(transaction=True)


class Owned(Remark):
    """A remark that belongs to its line's tenant, as a mail and as a task."""

    kind = "owned"
    task = "rejected"

    def events(self, scope: Any) -> Any:
        return super().events(scope).values(*self.columns, tenant=F("line__item"))

    columns = ("author", "body", "key", "event_at", "recipients")


def whose(model: Any) -> dict[int, str]:
    """Return the tenant of each event's row."""
    path = "" if model is Control else "control__"
    return dict(model.objects.values_list(f"{path}key", "tenant"))


def test_an_event_s_tenant_stands_on_each_of_its_rows_and_in_its_values(add_step):
    add_step(Owned)
    keys = [make_comment(line=make_line(item=tenant)).pk for tenant in ("acme", "日本", "")]

    do_pass()

    expected = dict(zip(keys, ("acme", "日本", ""), strict=True))
    assert whose(Control) == whose(MailQueue) == whose(TaskQueue) == expected
    assert {mail.tenant: mail.payload["tenant"] for mail in MailQueue.objects.all()} == {
        t: t for t in expected.values()
    }


def test_an_event_whose_tenant_cannot_be_one_is_blocked_and_the_others_go_on(add_step):
    add_step(Owned)
    keys = [make_comment(line=make_line(item=tenant)).pk for tenant in ("acme", "x" * 65, "globex ", "globex")]

    report = do_pass()

    assert whose(Control) == dict(zip(keys, ("acme", "", "", "globex"), strict=True))
    states = dict(MailQueue.objects.values_list("control__key", "state"))
    assert [states[key] for key in keys] == ["queued", "blocked", "blocked", "queued"]
    assert (report.outcome, report.steps[0].mails, report.steps[0].tasks) == ("warning", 2, 2)


def test_a_step_without_tenants_and_one_whose_tenant_is_null_give_rows_of_nobody(add_step):
    add_step(type("Whose", (Remark,), {"kind": "null", "events": null_tenant}))
    add_step(Remark)
    make_comments(1)

    assert do_pass().outcome == "ok"

    assert set(Control.objects.values_list("kind", "tenant")) == {("null", ""), ("remark", "")}
    assert set(MailQueue.objects.values_list("tenant", flat=True)) == {""}


def null_tenant(step: Any, scope: Any) -> Any:
    return Remark.events(step, scope).annotate(tenant=Value(None, CharField()))


def test_a_baseline_notes_the_tenant_as_well_and_a_faulty_one_stops_nothing(add_step):
    add_step(Owned)
    keys = [make_comment(line=make_line(item=tenant)).pk for tenant in ("acme", "x" * 65)]

    assert do_pass(is_baseline=True).outcome == "ok"

    assert whose(Control) == dict(zip(keys, ("acme", ""), strict=True))


def test_the_portal_s_events_belong_to_the_tenant_of_their_order():
    order = make_order(tenant="globex", registered_at=NOW, supplier=make_contact(), buyer=make_contact())
    line = make_line(order=order, tenant="globex", state="rejected", rejected_at=NOW)
    make_comment(line=line, recipient=make_contact())
    make_advice(order=order, state="accepted", accepted_at=NOW)

    do_pass()

    expected = {(kind, "globex") for kind in ("order", "rejected", "advice", "comment")}
    assert set(Control.objects.values_list("kind", "tenant")) == expected
    assert set(MailQueue.objects.values_list("control__kind", "tenant")) == expected
    assert TaskQueue.objects.get().tenant == "globex"
