"""Whose rows a user may see."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.test import Client

from kwit.models import Action, Membership
from kwit.people.tenants import of_model, sees, sees_all_for_lack_of_tenants, tenants_of, within
from notify.models import Control, MailQueue
from receipts.models import StoredPlan
from tests.browser.story import make_user
from tests.factories import make_line
from tests.kwit.listed import make_mail
from tests.receipts.kept import make_receipt

pytestmark = pytest.mark.django_db


@pytest.fixture
def member():
    """Return a user who belongs to acme and to zeta."""
    user = User.objects.create_user("member")
    for tenant in ("acme", "zeta"):
        Membership.objects.create(user=user, tenant=tenant)
    return user


@pytest.fixture
def actions():
    """Make one action each of three tenants and of none."""
    for tenant in ("acme", "zeta", "other", ""):
        Action.objects.create(actor="someone", name="reconcile", subject="x", tenant=tenant)


def test_a_member_sees_the_rows_of_his_tenants_only(member, actions):
    assert tenants_of(member) == {"acme", "zeta"}
    assert {row.tenant for row in of_model(member, Action)} == {"acme", "zeta"}
    assert sees(member, "acme")
    assert not sees(member, "other")


def test_a_user_without_a_tenant_sees_nothing_that_belongs_to_one(actions):
    for user in (User.objects.create_user("nobody"), AnonymousUser()):
        assert tenants_of(user) == frozenset()
        assert not within(Action.objects.all(), user).exists()


def test_who_may_see_all_tenants_sees_all(actions):
    operator = User.objects.create_user("operator")
    operator.user_permissions.add(Permission.objects.get(codename="see_all_tenants"))
    for user in (operator, User.objects.create_superuser("root")):
        assert tenants_of(user) is None
        assert of_model(user, Action).count() == 4


def test_a_member_who_was_shut_out_sees_nothing(member):
    member.is_active = False
    assert tenants_of(member) == frozenset()


def test_the_tenants_of_one_user_are_read_once(member, django_assert_num_queries):
    with django_assert_num_queries(3):  # two for the permissions, one for the tenants
        tenants_of(member)
        tenants_of(member)
        sees(member, "acme")


@pytest.fixture
def nobody():
    """Return a user who may view some lists and belongs to no tenant."""
    return make_user("nobody", "notify.view_mailqueue", "notify.view_control", "receipts.view_change")


def again(user):
    """Return the user as the next request has him."""
    return User.objects.get(pk=user.pk)


@pytest.mark.parametrize("tenant", ["membership", "control", "receipt", "plan", "action", "line"])
def test_where_no_tenant_is_in_use_everybody_sees_all_until_the_first_one(nobody, tenant):
    make_mail(1, subject="without a tenant")
    assert tenants_of(nobody) is None
    assert sees_all_for_lack_of_tenants(nobody)
    assert of_model(nobody, MailQueue).count() == 1

    if tenant == "membership":
        Membership.objects.create(user=User.objects.create_user("other"), tenant="acme")
    elif tenant == "control":
        Control.objects.create(kind="order", key=99, tenant="acme")
    elif tenant == "receipt":
        make_receipt("CHG-1")
    elif tenant == "plan":
        StoredPlan.objects.bulk_create(
            [StoredPlan(change_id="CHG-1", kind="cancel", tenant="acme", targets=[], author="ann")]
        )
    elif tenant == "line":
        make_line(tenant="acme")
    else:
        Action.objects.create(actor="someone", name="reconcile", subject="x", tenant="acme")

    assert tenants_of(again(nobody)) == frozenset()
    assert not sees_all_for_lack_of_tenants(again(nobody))
    assert of_model(again(nobody), MailQueue).count() == 0
    assert tenants_of(AnonymousUser()) == frozenset()


def test_a_shut_out_user_sees_nothing_where_no_tenant_is_in_use(nobody):
    nobody.is_active = False
    assert tenants_of(nobody) == frozenset()


def test_the_first_page_says_that_no_tenant_is_in_use_and_when_that_ended(nobody):
    mail = make_mail(1, subject="without a tenant")
    client = Client()
    client.force_login(nobody)
    assert "No tenant is in use" in client.get("/admin/").content.decode()
    assert "without a tenant" in client.get("/admin/notify/mailqueue/").content.decode()

    Control.objects.filter(pk=mail.control_id).update(tenant="acme")

    page = client.get("/admin/").content.decode()
    assert "No tenant is in use" not in page
    assert "You are not a member of any tenant" in page
    assert "without a tenant" not in client.get("/admin/notify/mailqueue/").content.decode()


def test_who_sees_all_tenants_is_told_nothing_of_it(admin_client):
    assert "No tenant is in use" not in admin_client.get("/admin/").content.decode()


def test_it_costs_a_seek_per_source_and_nothing_for_members(nobody, member, django_assert_num_queries):
    with django_assert_num_queries(3):
        tenants_of(member)
    Membership.objects.all().delete()
    sources = sum(getattr(one, "names_tenants", False) for one in admin.site._registry.values())
    with django_assert_num_queries(2 + 2 + sources):  # permissions; his memberships and anybody's; one per source
        tenants_of(nobody)
        tenants_of(nobody)
