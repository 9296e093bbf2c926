"""Whose rows a user may see."""

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User

from kwit.models import Action, Membership
from kwit.people.tenants import of_model, sees, tenants_of, within

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
