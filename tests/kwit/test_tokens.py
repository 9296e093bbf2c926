"""Tokens: one secret per program, kept as a hash, with the rights of its user and nothing more."""

import json
import re
from datetime import timedelta
from hashlib import sha256
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from kwit.models import Action, Token
from kwit.people.tokens import NameTaken, digest_of, find_token, make_token
from tests.browser.story import make_user

pytestmark = pytest.mark.django_db
PAGE = "/admin/kwit/token/"


@pytest.fixture
def robot():
    """Return a user who may see mails and make tokens."""
    return make_user("robot", "notify.view_mailqueue", "kwit.see_all_tenants", "kwit.add_token")


def get(secret: str, path: str = "/api/v1/mails", scheme: str = "Bearer") -> Any:
    return Client().get(path, headers={"authorization": f"{scheme} {secret}"})


def test_only_the_hash_of_a_secret_is_kept(robot):
    token, secret = make_token(robot, name="script")

    assert re.fullmatch(r"kwit_[A-Za-z0-9_-]{43}", secret)
    assert token.digest == sha256(secret.encode()).hexdigest()
    row = Token.objects.filter(pk=token.pk).values().get()
    assert secret not in str(row)
    assert row["prefix"] == secret[:11]


def test_a_token_opens_the_api_whatever_the_case_of_the_scheme(robot):
    _token, secret = make_token(robot, name="script")

    assert get(secret).status_code == 200
    assert get(secret, scheme="bearer").status_code == 200


def test_what_is_no_live_token_is_401_and_always_the_same(robot):
    now = timezone.now()
    _revoked, revoked = make_token(robot, name="revoked")
    _expired, expired = make_token(robot, name="expired", expires_at=now - timedelta(seconds=1))
    Token.objects.filter(name="revoked").update(revoked_at=now)
    other = make_user("gone", "notify.view_mailqueue")
    _inactive, inactive = make_token(other, name="inactive")
    other.is_active = False
    other.save()

    answers = [get(one) for one in (revoked, expired, inactive, "kwit_" + "x" * 43, "", "x" * 5000, "kwit_\u00e9")]

    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert {answer["WWW-Authenticate"] for answer in answers} == {'Bearer realm="kwit", error="invalid_token"'}


def test_without_token_and_session_it_is_401_with_the_scheme_to_use():
    for headers in ({}, {"authorization": "Basic a3dpdDpr"}):
        response = Client().get("/api/v1", headers=headers)

        assert (response.status_code, response["WWW-Authenticate"]) == (401, 'Bearer realm="kwit"')


def test_a_bad_token_is_not_made_good_by_a_session(admin_client):
    assert admin_client.get("/api/v1/mails").status_code == 200
    assert admin_client.get("/api/v1/mails", headers={"authorization": "Bearer kwit_x"}).status_code == 401


def test_a_token_has_the_rights_of_its_user_as_they_are_now(robot):
    _token, secret = make_token(robot, name="script")
    assert get(secret, "/api/v1/control").status_code == 403

    robot.user_permissions.clear()

    assert get(secret).status_code == 403


def test_a_token_opens_no_page(robot):
    _token, secret = make_token(robot, name="script")

    for path in ("/admin/", "/admin/notify/mailqueue/", PAGE):
        assert get(secret, path).status_code == 302


def test_the_last_use_is_written_once_a_minute(robot, django_assert_num_queries):
    token, secret = make_token(robot, name="script")
    now = timezone.now()

    find_token(digest_of(secret), now=now)
    find_token(digest_of(secret), now=now + timedelta(seconds=59))
    token.refresh_from_db()
    assert token.last_used_at == now

    with django_assert_num_queries(1):
        find_token(digest_of(secret), now=now + timedelta(seconds=59))
    find_token(digest_of(secret), now=now + timedelta(seconds=61))
    token.refresh_from_db()
    assert token.last_used_at == now + timedelta(seconds=61)


def test_the_secret_is_in_no_log_and_on_no_error_page(robot, settings, monkeypatch, caplog):
    _token, secret = make_token(robot, name="script")
    settings.DEBUG = True

    def broken(digest: str, *, now: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr("kwit.api.authentication.find_token", broken)
    client = Client(raise_request_exception=False, headers={"authorization": f"Bearer {secret}"})
    response = client.get("/api/v1/mails")

    assert response.status_code == 500
    assert b"RuntimeError" in response.content
    assert secret not in response.content.decode()
    assert secret not in caplog.text


def command(*words: str) -> Any:
    out = StringIO()
    call_command("kwit_token", *words, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_the_command_makes_lists_and_revokes(robot):
    made = command("create", "robot", "--name", "script", "--days", "30")
    assert get(made["token"]).status_code == 200
    assert timedelta(days=29) < Token.objects.get().expires_at - timezone.now() <= timedelta(days=30)

    [listed] = command("list", "robot")["tokens"]
    assert listed["user"] == "robot"
    assert listed["prefix"] == made["prefix"]
    assert made["token"] not in str(listed)

    with pytest.raises(CommandError, match="revoke it first"):
        command("create", "robot", "--name", "script")
    assert command("revoke", "robot", "--name", "script") == {"revoked": 1}
    assert get(made["token"]).status_code == 401
    command("create", "robot", "--name", "script")


def test_the_command_works_in_the_named_database_and_refuses_one_that_is_not_there(robot, monkeypatch):
    made = command("create", "robot", "--name", "script", "--database", "default")

    assert get(made["token"]).status_code == 200
    with pytest.raises(CommandError, match="invalid choice"):
        command("list", "--database", "nowhere")
    aliases = set()
    monkeypatch.setattr(
        "kwit.models.Token.objects.using", lambda alias: aliases.add(alias) or Token._base_manager.all()
    )
    command("list", "robot", "--database", "default")
    assert command("revoke", "robot", "--name", "script", "--database", "default") == {"revoked": 1}
    assert aliases == {"default"}


def test_the_command_prints_a_new_token_alone_so_that_a_script_can_take_it(robot):
    out = StringIO()
    call_command("kwit_token", "create", "robot", "--name", "script", stdout=out)

    assert get(out.getvalue().strip()).status_code == 200


@pytest.mark.parametrize(
    "words",
    [
        ("create", "robot"),
        ("create", "nobody", "--name", "x"),
        ("create", "robot", "--name", " "),
        ("create", "robot", "--name", "x" * 101),
        ("create", "robot", "--name", "x", "--days", "0"),
        ("revoke", "robot", "--name", "none"),
    ],
)
def test_the_command_says_what_is_wrong(robot, words):
    with pytest.raises(CommandError):
        command(*words)


def sign_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_user_makes_a_token_on_the_page_and_sees_it_once(robot):
    client = sign_in(robot)
    assert client.get(f"{PAGE}new/").status_code == 200

    shown = client.post(f"{PAGE}new/", {"name": "<b>script</b>", "days": "7"})

    [secret] = set(re.findall(r"kwit_[A-Za-z0-9_-]{43}", shown.content.decode()))
    assert get(secret).status_code == 200
    assert "no-store" in shown["Cache-Control"]
    assert b"<b>script</b>" not in shown.content
    token = Token.objects.get()
    for url in (PAGE, reverse("admin:kwit_token_change", args=[token.pk]), "/admin/"):
        assert secret not in client.get(url).content.decode()
    action = Action.objects.get()
    assert (action.actor, action.name, action.outcome) == ("robot", "make_token", "done")
    assert secret not in str(Action.objects.values().get())


def test_a_form_sent_twice_makes_one_token(robot):
    client = sign_in(robot)
    client.post(f"{PAGE}new/", {"name": "script", "days": "7"})

    again = client.post(f"{PAGE}new/", {"name": "script", "days": "7"})

    assert "You already have a token with this name" in again.content.decode()
    assert Token.objects.count() == 1


@pytest.mark.parametrize("data", [{}, {"name": "x", "days": "0"}, {"name": "x" * 101, "days": "1"}, {"name": "\x00"}])
def test_a_wrong_form_makes_none(robot, data):
    assert sign_in(robot).post(f"{PAGE}new/", data).status_code == 200
    assert not Token.objects.exists()


def test_a_user_sees_and_revokes_his_own_only(robot):
    mine, secret = make_token(robot, name="mine")
    theirs, other = make_token(make_user("other", "notify.view_mailqueue", "kwit.see_all_tenants"), name="theirs")
    client = sign_in(robot)

    page = client.get(PAGE).content.decode()
    assert "mine" in page
    assert "theirs" not in page
    assert client.get(reverse("admin:kwit_token_change", args=[theirs.pk])).status_code == 404
    data = {"pk": [mine.pk, theirs.pk], "scope": "selected", "confirmed": "1"}
    client.post(f"{PAGE}action/revoke/", data)

    assert get(secret).status_code == 401
    assert get(other).status_code == 200


def test_without_the_permission_there_is_no_page(db):
    client = sign_in(make_user("viewer", "notify.view_mailqueue"))

    assert client.get(PAGE).status_code == 403
    assert client.get(f"{PAGE}new/").status_code == 403
    assert client.post(f"{PAGE}new/", {"name": "x", "days": "1"}).status_code == 403


def test_one_name_is_taken_per_user(robot):
    make_token(robot, name="script")
    make_token(make_user("other"), name="script")

    with pytest.raises(NameTaken):
        make_token(robot, name="script")


def revoked(secret: str) -> bool:
    return Token.objects.get(digest=digest_of(secret)).revoked_at is not None


@pytest.mark.parametrize("password", ["another-Pass-77", None])
def test_a_token_ends_when_its_user_gets_another_password(robot, password):
    _token, secret = make_token(robot, name="script")
    assert get(secret).status_code == 200

    robot.set_password(password)
    robot.save()

    assert get(secret).status_code == 401
    assert revoked(secret)
    assert "revoked" in sign_in(robot).get(PAGE).content.decode()


def test_a_token_ends_when_the_password_is_changed_on_the_page(robot):
    robot.set_password("a right password")
    robot.save()
    _token, secret = make_token(robot, name="script")
    form = {"old_password": "a right password", "new_password1": "another-Pass-77", "new_password2": "another-Pass-77"}

    assert sign_in(robot).post("/admin/password_change/", form).status_code == 302

    assert get(secret).status_code == 401


def test_a_token_used_while_its_user_is_inactive_does_not_come_back(robot):
    _token, secret = make_token(robot, name="script")
    type(robot).objects.filter(pk=robot.pk).update(is_active=False)
    assert get(secret).status_code == 401

    type(robot).objects.filter(pk=robot.pk).update(is_active=True)

    assert get(secret).status_code == 401


def test_who_is_deactivated_on_the_page_loses_his_tokens_for_good(robot, admin_client):
    _token, secret = make_token(robot, name="script")
    url = reverse("admin:auth_user_change", args=[robot.pk])
    shown = admin_client.get(url).context["adminform"].form
    form = {
        **{name: value for name, value in shown.initial.items() if value not in (None, False) and name != "password"},
        **{"user_permissions": [one.pk for one in shown.initial["user_permissions"]], "groups": []},
        **{"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"},
        **{"memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"},
    }
    assert admin_client.post(url, form).status_code == 302
    assert not revoked(secret), "nothing was deactivated"

    del form["is_active"]
    assert admin_client.post(url, form).status_code == 302

    assert revoked(secret)
    type(robot).objects.filter(pk=robot.pk).update(is_active=True)
    assert get(secret).status_code == 401


def test_a_token_ends_at_the_sites_limit_whatever_it_was_made_with(robot, settings):
    token, secret = make_token(robot, name="script")
    Token.objects.update(created_at=timezone.now() - timedelta(days=30))
    assert get(secret).status_code == 200

    settings.KWIT = {**settings.KWIT, "TOKEN_DAYS": 30}
    assert get(secret).status_code == 401
    assert not revoked(secret), "a longer limit revives it"
    assert "expired" in sign_in(robot).get(PAGE).content.decode()
    settings.KWIT = {**settings.KWIT, "TOKEN_DAYS": 0}
    assert get(secret).status_code == 200
    token.refresh_from_db()
    assert token.ends_at(days_max=0) is None


def test_nobody_makes_a_token_that_lives_longer_than_the_site_allows(robot, settings):
    settings.KWIT = {**settings.KWIT, "TOKEN_DAYS": 30}

    with pytest.raises(CommandError, match="from 1 to 30"):
        command("create", "robot", "--name", "script", "--days", "31")
    page = sign_in(robot).post(f"{PAGE}new/", {"name": "script", "days": "31"})
    assert page.status_code == 200
    assert not Token.objects.exists()

    command("create", "robot", "--name", "script")
    assert Token.objects.get().expires_at - timezone.now() <= timedelta(days=30)


def test_revoking_asks_on_a_page_first_and_is_recorded(robot):
    token, secret = make_token(robot, name="script")
    client = sign_in(robot)

    asked = client.post(f"{PAGE}action/revoke/", {"pk": [token.pk], "scope": "selected"})
    assert asked.status_code == 200
    assert token.prefix in asked.content.decode()
    assert get(secret).status_code == 200
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked.content.decode()))
    assert client.post(f"{PAGE}action/revoke/", hidden).status_code == 302

    assert get(secret).status_code == 401
    action = Action.objects.get()
    assert (action.actor, action.name, action.scope, action.done) == ("robot", "revoke", token.prefix, 1)


@pytest.mark.parametrize("days", [-1, 3651, "30"])
def test_a_limit_that_makes_no_sense_is_found_by_check(settings, days):
    settings.KWIT = {"TOKEN_DAYS": days}

    with pytest.raises(SystemCheckError, match=r"kwit\.E001"):
        call_command("check")
