"""The plain admin pages: they show, they change nothing, and a page costs a fixed number of queries."""

from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from notify.models import Control, MailQueue, RunLog, TaskQueue
from tests.factories import NOW

pytestmark = pytest.mark.django_db
PASS = UUID(int=1)


def fill(rows: int) -> None:
    for key in range(1, rows + 1):
        control = Control.objects.create(kind="comment", key=key, recipients="<b>a@example.org</b>")
        MailQueue.objects.create(control=control, subject="<script>alert(1)</script>", recipients=["a@example.org"])
        TaskQueue.objects.create(control=control, title="Call them", assignee="bob")
        RunLog.objects.create(pass_id=PASS, step="comment", outcome="error", ended_at=NOW, error=f"<script>{key}\nmore")


@pytest.mark.parametrize("model", [Control, RunLog, MailQueue, TaskQueue])
def test_a_list_costs_the_same_queries_for_two_rows_and_for_forty(
    admin_client: Client, model: Any, django_assert_max_num_queries: Any
) -> None:
    address = reverse(f"admin:notify_{model._meta.model_name}_changelist")
    fill(2)
    with django_assert_max_num_queries(12) as few:
        admin_client.get(address)
    fill_more = range(100, 140)
    for key in fill_more:
        control = Control.objects.create(kind="advice", key=key)
        MailQueue.objects.create(control=control)
        TaskQueue.objects.create(control=control, title="x")
        RunLog.objects.create(pass_id=PASS, step="advice")

    with django_assert_max_num_queries(len(few)):
        page = admin_client.get(address)

    assert page.status_code == 200


@pytest.mark.parametrize("model", [Control, RunLog, MailQueue, TaskQueue])
def test_a_superuser_sees_a_row_and_is_offered_no_change(admin_client: Client, model: Any) -> None:
    fill(1)
    name = f"admin:notify_{model._meta.model_name}"

    page = admin_client.get(reverse(f"{name}_change", args=[model.objects.get().pk]))

    assert page.status_code == 200
    assert "<script>alert" not in page.content.decode()
    assert 'name="_save"' not in page.content.decode()
    assert admin_client.get(reverse(f"{name}_add")).status_code == 403
    assert admin_client.post(reverse(f"{name}_delete", args=[model.objects.get().pk])).status_code == 403


def test_markup_in_what_was_logged_is_shown_as_text(admin_client: Client) -> None:
    fill(1)

    pages = [
        admin_client.get(reverse(f"admin:notify_{name}_changelist")).content.decode()
        for name in ("control", "runlog", "mailqueue")
    ]

    assert "&lt;b&gt;a@example.org" in pages[0]
    assert "&lt;script&gt;1" in pages[1]
    assert "&lt;script&gt;alert" in pages[2]
    assert not any("<script>1" in page or "<script>alert" in page for page in pages)


def test_a_list_does_not_count_the_table(admin_client: Client, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(12) as queries:
        admin_client.get(reverse("admin:notify_runlog_changelist"))

    counts = [query["sql"] for query in queries if "COUNT(" in query["sql"].upper()]

    assert counts
    assert all("LIMIT" in sql.upper() or "TOP" in sql.upper() for sql in counts)
