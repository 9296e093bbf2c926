"""The pages of plans: what they show, what they refuse, and that four eyes stay four."""
import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from desk.models import Action, Membership
from portal.models import OrderLine
from receipts.api import approve_plan, store_plan, apply_plan
from receipts.models import Change, StoredPlan
from tests.browser.story import make_user
from tests.factories import make_line
from tests.receipts.plain import states, target

pytestmark = pytest.mark.django_db
PLANS = "/admin/receipts/storedplan/"

def test_smoke(client):
    ann = make_user("ann", "receipts.view_storedplan", "receipts.add_storedplan", "receipts.approve_plan", "receipts.apply_plan", "receipts.view_change", "desk.see_all_tenants", "portal.view_orderline")
    bob = make_user("bob", "receipts.view_storedplan", "receipts.approve_plan", "receipts.apply_plan", "receipts.view_change")
    Membership.objects.create(user=bob, tenant="acme")
    client.force_login(ann)
    line, other = make_line(), make_line()
    print(client.get(PLANS).content.decode()[-1500:])
    assert client.get(PLANS + "upload/").status_code == 200
    f = io.BytesIO(b"id,revision,qty\n%d,4,10\n007,1.0,x\n" % line.pk); f.name = "p.csv"
    page = client.post(PLANS + "upload/", {"kind": "cancel", "change_id": "", "tenant": "acme", "reason": "<b>r", "file": f})
    print(page.content.decode()[page.content.decode().index("content-main"):])
    f = io.BytesIO(b"id,revision,qty\n%d,4,10\n%d,4,10\n" % (line.pk, other.pk)); f.name = "p.csv"
    page = client.post(PLANS + "upload/", {"kind": "cancel", "change_id": "CHG/1", "tenant": "acme", "reason": "<b>r", "file": f})
    assert page.status_code == 302, page.content.decode()
    plan = StoredPlan.objects.get()
    page = client.get(page.url)
    text = page.content.decode()
    print(text[text.index("content-main"):])
    client.force_login(bob)
    text = client.get(f"{PLANS}{plan.pk}/change/").content.decode()
    assert "Approve" in text
    page = client.post(f"{PLANS}{plan.pk}/approve/", {"digest": plan.digest})
    print(page.content.decode()[page.content.decode().index("content-main"):])
    page = client.post(f"{PLANS}{plan.pk}/approve/", dict(page.context["asked"].hidden), follow=True)
    assert "Approved." in page.content.decode()
    OrderLine.objects.filter(pk=line.pk).update(qty=7)
    page = client.post(f"{PLANS}{plan.pk}/apply/", {"digest": plan.digest})
    page = client.post(f"{PLANS}{plan.pk}/apply/", dict(page.context["asked"].hidden), follow=True)
    text = page.content.decode()
    print(text[text.index("messagelist"):])
    client.force_login(ann)
    page = client.get(f"{PLANS}{plan.pk}/again/")
    text = page.content.decode()
    print(text[text.index("content-main"):])
    page = client.post("/admin/portal/orderline/act/plan_cancel/?tenant=acme", {"scope": "matching"})
    text = page.content.decode()
    print(text[text.index("content-main"):])
    page = client.post("/admin/portal/orderline/act/plan_cancel/?tenant=acme", dict(page.context["asked"].hidden)|{"change_id": "X-1"}, follow=True)
    text = page.content.decode()
    print(text[text.index("messagelist"):])
    for a in Action.objects.all(): print(vars(a))
