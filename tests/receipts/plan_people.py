"""Who takes part in the tests of plans, and what they send."""

import io
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from kwit.models import Membership
from portal.models import OrderLine
from receipts.api import Target, approve_plan, store_plan
from receipts.models import StoredPlan
from tests.browser.story import make_user
from tests.factories import NOW

PLANS = "/admin/receipts/storedplan/"
UPLOAD = f"{PLANS}upload/"
SEE = ("receipts.view_storedplan", "receipts.view_change", "portal.view_orderline")
WRITE = (*SEE, "receipts.add_storedplan")
APPROVE = (*SEE, "receipts.approve_plan")
APPLY = (*SEE, "receipts.apply_plan")
ALL = (*WRITE, "receipts.change_storedplan", "receipts.approve_plan", "receipts.apply_plan")


def person(name: str, *permissions: str, tenants: tuple[str, ...] = ("acme",)) -> User:
    """Make a person of these tenants."""
    user = make_user(name, *permissions)
    Membership.objects.bulk_create(Membership(user=user, tenant=tenant) for tenant in tenants)
    return user


def signed_in(name: str, *permissions: str, tenants: tuple[str, ...] = ("acme",), **options: Any) -> Client:
    """Return a browser in which this new person is signed in."""
    client = Client(**options)
    client.force_login(person(name, *permissions, tenants=tenants))
    return client


def stored(*lines: OrderLine | Target, **more: Any) -> StoredPlan:
    """Store a plan of ann's for these lines as they are."""
    targets = [one if isinstance(one, Target) else Target(one.pk, one.revision, one.qty or 0) for one in lines]
    plan = {"kind": "cancel", "change_id": "CHG-1", "tenant": "acme", "targets": targets, "author": "ann"} | more
    return store_plan(**plan)


def approved(*lines: OrderLine | Target, **more: Any) -> StoredPlan:
    """Store a plan of ann's that bob has approved."""
    plan = stored(*lines, **more)
    approve_plan(pk=plan.pk, approver="bob", digest=plan.digest, now=NOW)
    plan.refresh_from_db()
    return plan


def address(plan: StoredPlan, page: str = "change") -> str:
    """Return the address of one of a plan's pages."""
    return f"{PLANS}{plan.pk}/{page}/"


def text_of(client: Client, url: str, **query: Any) -> str:
    """Return a page's text."""
    page = client.get(url, query)
    assert page.status_code == 200, page.content[:500]
    return str(page.content.decode())


def file(content: str | bytes, name: str = "plan.csv") -> io.BytesIO:
    """Return a file as a browser sends it."""
    sent = io.BytesIO(content.encode() if isinstance(content, str) else content)
    sent.name = name
    return sent


def csv_of(*lines: OrderLine) -> str:
    """Return a CSV that approves lines as they are."""
    return "id,revision,qty\n" + "".join(f"{line.pk},{line.revision},{line.qty}\n" for line in lines)


def send(client: Client, content: str | bytes = "", name: str = "plan.csv", **fields: Any) -> Any:
    """Upload a plan."""
    data = {"kind": "cancel", "change_id": "CHG-1", "tenant": "acme", "file": file(content, name)} | fields
    return client.post(UPLOAD, {key: value for key, value in data.items() if value is not None})


def decide(client: Client, plan: StoredPlan, page: str, **data: Any) -> Any:
    """Do what the confirmation page offers after a click on the plan's own page; return the answer."""
    asked = client.post(address(plan, page), {"digest": plan.digest})
    assert asked.status_code == 200, asked
    return client.post(address(plan, page), dict(asked.context["asked"].hidden) | data)


def said(answer: Any) -> str:
    """Return the messages of the page to which an answer leads."""
    page = answer.client.get(answer.url)
    assert page.status_code == 200
    return " ".join(str(message) for message in page.context["messages"])
