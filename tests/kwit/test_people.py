"""Groups, tenants and accounts: who may give what to whom."""

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from kwit.models import Action, Membership
from kwit.people.groups import GROUPS, declared
from tests.browser.story import PASSWORD, make_user

pytestmark = pytest.mark.django_db
EDIT = ("auth.view_user", "auth.add_user", "auth.change_user", "auth.delete_user")


def said(command: str, *args: str) -> Any:
    out = StringIO()
    call_command(command, *args, "--json", stdout=out)
    return json.loads(out.getvalue())


def labels(group: str) -> set[str]:
    found = Group.objects.get(name=group).permissions.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in found}


def test_the_groups_have_what_the_table_says_and_none_sees_all_tenants() -> None:
    made = said("kwit_groups")["groups"]

    assert [one["group"] for one in made] == ["viewer", "operator", "approver", "auditor"]
    assert all(one["is_new"] for one in made)
    for name in GROUPS:
        assert labels(name) == set(declared()[name])
        assert "kwit.see_all_tenants" not in labels(name)
    assert not any(label.startswith("auth.") for name in GROUPS for label in labels(name))


def test_nobody_drafts_and_approves_by_one_group() -> None:
    both = {"receipts.add_storedplan", "receipts.approve_plan"}

    assert [name for name, has in declared().items() if both <= set(has)] == []


def test_done_twice_it_does_nothing_the_second_time() -> None:
    said("kwit_groups")

    assert all(one == one | {"is_new": False, "added": [], "removed": []} for one in said("kwit_groups")["groups"])


def test_what_the_table_does_not_give_is_taken_and_what_is_not_ours_stays() -> None:
    viewer = Group.objects.create(name="viewer")
    names = ("see_all_tenants", "view_user")
    viewer.permissions.set(Permission.objects.filter(codename__in=names))

    made = said("kwit_groups")["groups"][0]

    assert (made["is_new"], made["removed"]) == (False, ["kwit.see_all_tenants"])
    assert labels("viewer") == {*declared()["viewer"], "auth.view_user"}


def test_the_group_that_sees_all_tenants_is_made_when_it_is_asked_for() -> None:
    said("kwit_groups", "--all-tenants")

    assert labels("all-tenants") == {"kwit.see_all_tenants"}


def test_a_site_adds_permissions_of_its_own(settings: Any) -> None:
    settings.KWIT = {"GROUPS": {"viewer": ["portal.view_order"], "packer": ["portal.view_order"]}}

    said("kwit_groups")

    assert all("portal.view_order" in labels(name) for name in (*GROUPS, "packer"))


def test_a_permission_that_is_not_there_is_named_and_nothing_is_made() -> None:
    Permission.objects.get(codename="approve_plan").delete()

    with pytest.raises(CommandError, match=r"receipts\.approve_plan"):
        call_command("kwit_groups")
    assert not Group.objects.exists()


def test_people_join_and_leave_tenants_and_each_leaves_a_row() -> None:
    user = make_user("olga")

    first = said("kwit_member", "olga", "--add", "acme", "zeta", "--actor", "root")
    second = said("kwit_member", "olga", "--add", "acme", "--remove", "zeta", "nowhere", "--actor", "root")

    assert first == {"user": "olga", "tenants": ["acme", "zeta"], "joined": ["acme", "zeta"], "left": []}
    assert second == {"user": "olga", "tenants": ["acme"], "joined": [], "left": ["zeta"]}
    assert [row.tenant for row in user.memberships.all()] == ["acme"]
    rows = Action.objects.order_by("pk").values_list("actor", "name", "scope", "tenant")
    assert list(rows) == [
        ("root", "join", "olga", "acme"),
        ("root", "join", "olga", "zeta"),
        ("root", "leave", "olga", "zeta"),
    ]


@pytest.mark.parametrize("tenant", ["", " acme", "a" * 65, "ac\nme"])
def test_what_is_no_tenants_name_is_refused_whole(tenant: str) -> None:
    make_user("olga")

    with pytest.raises(CommandError, match="1 to 64 printable characters"):
        call_command("kwit_member", "olga", "--add", "acme", tenant)
    assert not Membership.objects.exists()


def test_a_user_who_is_not_there_is_named() -> None:
    with pytest.raises(CommandError, match="'nobody'"):
        call_command("kwit_member", "nobody")


def page_of(user: User) -> str:
    return f"/admin/auth/user/{user.pk}/change/"


def form_of(page: Any) -> dict[str, Any]:
    """Return what a browser would post of a user's page."""
    data: dict[str, Any] = {}
    forms = [page.context["adminform"].form]
    for wrapped in page.context["inline_admin_formsets"]:
        forms += [wrapped.formset.management_form, *wrapped.formset.forms]
    for form in forms:
        for field in form:
            value = field.value()
            if value is not None and value is not False and value != "":
                data[field.html_name] = value
    data["date_joined_0"], data["date_joined_1"] = "2026-01-31", "08:00:00"
    return data


def add_tenant(client: Client, user: User, tenant: str, **more: Any) -> Any:
    data = form_of(client.get(page_of(user)))
    place = int(data["memberships-INITIAL_FORMS"])
    return client.post(page_of(user), {**data, f"memberships-{place}-tenant": tenant, **more})


def test_a_superuser_gives_and_takes_tenants_on_the_users_page(admin_client: Client) -> None:
    olga = make_user("olga")

    assert add_tenant(admin_client, olga, "acme").status_code == 302
    assert list(olga.memberships.values_list("tenant", flat=True)) == ["acme"]

    data = form_of(admin_client.get(page_of(olga))) | {"memberships-0-DELETE": "on"}
    assert admin_client.post(page_of(olga), data).status_code == 302
    assert not olga.memberships.exists()
    assert list(Action.objects.order_by("pk").values_list("name", "tenant")) == [("join", "acme"), ("leave", "acme")]


def test_the_users_page_keeps_to_the_strict_policy(admin_client: Client) -> None:
    page = admin_client.get(page_of(make_user("olga")))

    text = page.content.decode()
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "<style" not in text
    assert " onclick=" not in text
    assert 'name="memberships-0-tenant"' in text


@pytest.fixture
def editor(client: Client) -> User:
    """Sign in somebody who looks after accounts, belongs to acme and may retry mails."""
    user = make_user("editor", *EDIT, "auth.change_group", "auth.view_group", "notify.retry_mail")
    Membership.objects.create(user=user, tenant="acme")
    client.force_login(user)
    return user


def test_an_editor_gives_what_he_has(client: Client, editor: User) -> None:
    olga = make_user("olga")
    retry = Permission.objects.get(codename="retry_mail")

    assert add_tenant(client, olga, "acme", user_permissions=[retry.pk]).status_code == 302

    assert User.objects.get(pk=olga.pk).has_perm("notify.retry_mail")
    assert list(olga.memberships.values_list("tenant", flat=True)) == ["acme"]


def test_an_editor_gives_nobody_a_tenant_that_he_has_not_got_himself_included(client: Client, editor: User) -> None:
    for user in (make_user("olga"), editor):
        page = add_tenant(client, user, "zeta")

        assert page.status_code == 200
        assert b"You are not a member of this tenant" in page.content
        assert "zeta" not in user.memberships.values_list("tenant", flat=True)


def test_an_editor_gives_nobody_a_right_that_he_has_not_got_himself_included(client: Client, editor: User) -> None:
    call_command("kwit_groups", stdout=StringIO())
    run, operator = Permission.objects.get(codename="run_pass"), Group.objects.get(name="operator")
    for user in (make_user("olga"), editor):
        for given in ({"user_permissions": [run.pk]}, {"groups": [operator.pk]}, {"is_superuser": "on"}):
            data = form_of(client.get(page_of(user)))
            client.post(page_of(user), data | given)

            fresh = User.objects.get(pk=user.pk)
            assert not fresh.is_superuser
            assert not fresh.has_perm("notify.run_pass")


def test_whether_an_editor_may_manage_an_account_is_looked_up_once_a_page(
    client: Client, editor: User, django_assert_max_num_queries: Any
) -> None:
    user = make_user("olga")
    client.get(page_of(user))

    with django_assert_max_num_queries(25) as queries:
        client.get(page_of(user))

    asked = [query["sql"] for query in queries if "CONCAT" in query["sql"].upper() or "COALESCE" in query["sql"]]
    asked = [sql for sql in asked if re.search(rf"user_id\W* = {user.pk}\b", sql)]
    assert len(asked) == 2


@pytest.mark.parametrize("more", ["superuser", "right", "group", "tenant", "shut out"])
def test_an_editor_does_not_take_over_an_account_that_may_do_more(client: Client, editor: User, more: str) -> None:
    victim = make_user("victim")
    if more in ("superuser", "shut out"):
        User.objects.filter(pk=victim.pk).update(is_superuser=True, is_active=more == "superuser")
    elif more == "right":
        victim.user_permissions.add(Permission.objects.get(codename="approve_plan"))
    elif more == "group":
        call_command("kwit_groups", stdout=StringIO())
        victim.groups.add(Group.objects.get(name="approver"))
    else:
        Membership.objects.create(user=victim, tenant="zeta")
    password = f"/admin/auth/user/{victim.pk}/password/"
    new = {"password1": "another-Pass-77", "password2": "another-Pass-77", "usable_password": "true"}

    answers = [
        client.get(password),
        client.post(password, new),
        client.post(page_of(victim), {"username": "mine", "is_active": "on"}),
        client.post(f"/admin/auth/user/{victim.pk}/delete/", {"post": "yes"}),
        client.post(
            "/admin/auth/user/",
            {"action": "delete_selected", "_selected_action": [victim.pk], "post": "yes"},
        ),
    ]

    assert [answer.status_code for answer in answers] == [403, 403, 403, 403, 403]
    fresh = User.objects.get(pk=victim.pk)
    assert fresh.username == "victim"
    assert fresh.check_password(PASSWORD)
    assert "zeta" not in client.get(page_of(victim)).content.decode()


def test_an_editor_resets_the_password_of_an_account_within_his_rights(client: Client, editor: User) -> None:
    olga = make_user("olga", "notify.retry_mail")
    new = {"password1": "another-Pass-77", "password2": "another-Pass-77", "usable_password": "true"}

    assert client.post(f"/admin/auth/user/{olga.pk}/password/", new).status_code == 302
    assert User.objects.get(pk=olga.pk).check_password("another-Pass-77")


def test_an_editor_puts_no_right_that_he_has_not_got_into_a_group(client: Client, editor: User) -> None:
    mine = Group.objects.create(name="mine")
    call_command("kwit_groups", stdout=StringIO())
    run = Permission.objects.get(codename="run_pass")

    page = client.post(f"/admin/auth/group/{mine.pk}/change/", {"name": "mine", "permissions": [run.pk]})
    other = client.post(f"/admin/auth/group/{Group.objects.get(name='operator').pk}/change/", {"name": "mine2"})

    assert page.status_code == 200
    assert labels("mine") == set()
    assert other.status_code == 403


def test_who_may_not_change_users_sees_tenants_and_changes_none(client: Client) -> None:
    olga = make_user("olga")
    Membership.objects.create(user=olga, tenant="acme")
    client.force_login(make_user("viewer", "auth.view_user", "kwit.see_all_tenants", "kwit.add_membership"))

    page = client.get(page_of(olga))

    assert "acme" in page.content.decode()
    assert 'name="memberships-0-tenant"' not in page.content.decode()
    assert client.post(page_of(olga), {"memberships-0-tenant": "zeta"}).status_code == 403
