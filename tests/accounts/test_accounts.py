"""With accounts on: a second factor, single sign-on, and nothing that either gives by itself."""

import importlib
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import (
    TOTP,
    format_hotp_value,
    generate_totp_secret,
    hotp_value,
    yield_hotp_counters_from_time,
)
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.urls import clear_url_caches

from tests.accounts.provider import Provider, serve

pytestmark = pytest.mark.django_db
SIGN_IN, SECOND, HOME = "/accounts/login/", "/accounts/2fa/authenticate/", "/admin/"
RIGHT, WRONG = "a right password", "a wrong one"
INLINE = re.compile(r"<script(?![^>]*(\bsrc=|application/json))|<style|\sstyle=|\son[a-z]+=")


@pytest.fixture(autouse=True)
def olga() -> User:
    cache.clear()
    return User.objects.create_user("olga", password=RIGHT, is_staff=True)


def code_of(secret: str) -> str:
    """Return what an authenticator app shows now."""
    return format_hotp_value(hotp_value(secret, next(yield_hotp_counters_from_time())))


def sign_in(client: Client, password: str = RIGHT, name: str = "olga") -> Any:
    return client.post(SIGN_IN, {"login": name, "password": password, "next": HOME})


@pytest.fixture
def secret(olga: User) -> str:
    """Give olga a second factor."""
    made = generate_totp_secret()
    TOTP.activate(olga, made)
    RecoveryCodes.activate(olga)
    return made


def test_the_admins_own_sign_in_leads_to_the_accounts(client: Client, secret: str) -> None:
    form = {"username": "olga", "password": RIGHT, "next": HOME}

    for page in (client.get("/admin/login/?next=/admin/"), client.post("/admin/login/", form), client.get(HOME)):
        assert page.status_code == 302
        assert "login/" in page.url
    assert client.post("/admin/login/", form).url.startswith(SIGN_IN)
    assert "_auth_user_id" not in client.session


def test_a_password_signs_in_who_has_no_second_factor(client: Client) -> None:
    assert sign_in(client).url == HOME
    assert client.get(HOME).status_code == 200
    assert b"/accounts/2fa/" in client.get(HOME).content


def test_a_password_alone_does_not_sign_in_who_has_a_second_factor(client: Client, secret: str) -> None:
    assert sign_in(client).url.startswith(SECOND)
    assert client.get(HOME).status_code == 302

    assert client.post(SECOND, {"code": "000000" if code_of(secret) != "000000" else "000001"}).status_code == 200
    assert client.get(HOME).status_code == 302

    assert client.post(SECOND, {"code": code_of(secret)}).url == HOME
    assert client.get(HOME).status_code == 200


def test_a_code_is_good_once(secret: str) -> None:
    code, answers = code_of(secret), []
    for client in (Client(), Client()):
        sign_in(client)
        answers.append(client.post(SECOND, {"code": code}).status_code)

    assert answers == [302, 200]


def test_a_recovery_code_is_good_once(olga: User, secret: str) -> None:
    codes = Authenticator.objects.get(user=olga, type="recovery_codes").wrap().get_unused_codes()
    answers = []
    for client in (Client(), Client()):
        sign_in(client)
        answers.append(client.post(SECOND, {"code": codes[0]}).status_code)

    assert answers == [302, 200]


def test_guessing_codes_ends_after_five_also_for_the_right_one(secret: str) -> None:
    client = Client()
    sign_in(client)
    wrong = f"{(int(code_of(secret)) + 7) % 10**6:06}"
    for _ in range(5):
        client.post(SECOND, {"code": wrong})

    assert client.post(SECOND, {"code": code_of(secret)}).status_code in (200, 429)
    assert client.get(HOME).status_code == 302


def test_somebody_sets_up_a_second_factor_by_himself(client: Client, olga: User) -> None:
    sign_in(client)
    assert client.get("/accounts/2fa/totp/activate/").url.startswith("/accounts/reauthenticate/")
    client.post("/accounts/reauthenticate/", {"password": RIGHT})
    page = client.get("/accounts/2fa/totp/activate/")
    assert page.status_code == 200, page.headers
    text = page.content.decode()
    assert "<svg" in text
    assert "data:" not in text

    done = client.post("/accounts/2fa/totp/activate/", {"code": code_of(page.context["form"].secret)})

    assert done.status_code == 302
    assert {row.type for row in Authenticator.objects.filter(user=olga)} == {"totp", "recovery_codes"}
    assert client.get(done.url).status_code == 200


def test_five_wrong_passwords_lock_and_the_right_one_then_says_nothing() -> None:
    pages = [sign_in(Client(), WRONG) for _ in range(5)]
    pages += [sign_in(Client(), WRONG), sign_in(Client(), RIGHT)]

    assert [page.status_code for page in pages] == [200, 200, 200, 200, 429, 429, 429]
    assert pages[-1].content == pages[-2].content
    assert "_auth_user_id" not in pages[-1].wsgi_request.session


def test_nobody_signs_up(client: Client) -> None:
    form = {"username": "mallory", "password1": "another-Pass-77", "password2": "another-Pass-77"}

    assert b"closed" in client.get("/accounts/signup/").content
    client.post("/accounts/signup/", form)

    assert not User.objects.filter(username="mallory").exists()


def test_every_page_of_the_accounts_keeps_to_the_strict_policy(client: Client, secret: str) -> None:
    names = ["login/", "signup/", "inactive/", "3rdparty/signup/", "3rdparty/login/error/"]
    names += ["password/change/", "reauthenticate/", "3rdparty/", "logout/", "3rdparty/login/cancelled/"]
    names += [f"2fa/{name}" for name in ("", "totp/activate/", "totp/deactivate/", "recovery-codes/")]
    names += ["2fa/recovery-codes/generate/"]
    seen = 0
    for who in ("nobody", "olga"):
        if who == "olga":
            sign_in(client)
            client.post(SECOND, {"code": code_of(secret)})
        for name in names:
            page = client.get(f"/accounts/{name}")
            assert page.status_code in (200, 302, 401), (who, name, page.status_code)
            assert "script-src 'self'" in page.headers["Content-Security-Policy"]
            if page.status_code != 302:
                seen += 1
                text = page.content.decode()
                assert not INLINE.search(text), (name, INLINE.search(text))
                assert "signing_in/page.css" in text, name
    assert seen > 12


def mail_link(path: str) -> str:
    """Return the only link below a path in the newest mail."""
    [link] = re.findall(rf"http://testserver({path}\S+)", str(mail.outbox[-1].body))
    return link


def confirm_password(client: Client) -> None:
    client.post("/accounts/reauthenticate/", {"password": RIGHT})


@pytest.fixture
def by_mail(settings: Any) -> Iterator[None]:
    """Turn addresses and resets by mail on, as ACCOUNTS_MAIL does when the site starts."""
    import config.urls

    def reload_urls() -> None:
        importlib.reload(config.urls)
        clear_url_caches()

    settings.ACCOUNTS_MAIL = True
    reload_urls()
    yield
    settings.ACCOUNTS_MAIL = False
    reload_urls()


MAIL_PATHS = ["email/", "confirm-email/", "confirm-email/x/", "password/reset/", "password/reset/done/"]
MAIL_PATHS += ["password/reset/key/1-abc/", "password/reset/key/done/"]
NEVER = ["password/set/", "login/code/confirm/", "reauthenticate/code/", "reauthenticate/code/confirm/"]


@pytest.mark.parametrize("path", [*MAIL_PATHS, *NEVER])
def test_no_page_leads_into_an_account_by_mail_unless_the_site_says_so(client: Client, path: str) -> None:
    sign_in(client)

    assert client.get(f"/accounts/{path}").status_code == 404
    assert client.post(f"/accounts/{path}", {"email": "mallory@example.org", "action_add": "1"}).status_code == 404
    assert b"password/reset" not in Client().get(SIGN_IN).content


@pytest.mark.parametrize("path", NEVER)
@pytest.mark.usefixtures("by_mail")
def test_some_pages_are_not_there_even_then(client: Client, path: str) -> None:
    sign_in(client)

    assert client.get(f"/accounts/{path}").status_code == 404


@pytest.mark.usefixtures("by_mail")
def test_an_open_session_alone_adds_no_address(client: Client, olga: User) -> None:
    sign_in(client)

    page = client.post("/accounts/email/", {"email": "mallory@example.org", "action_add": "1"})

    assert page.url.startswith("/accounts/reauthenticate/")
    assert not EmailAddress.objects.filter(user=olga).exists()
    assert not mail.outbox


@pytest.mark.usefixtures("by_mail")
def test_an_unverified_address_neither_becomes_the_primary_one_nor_gets_a_new_password(
    client: Client, olga: User
) -> None:
    sign_in(client)
    confirm_password(client)
    client.post("/accounts/email/", {"email": "mallory@example.org", "action_add": "1"})
    assert EmailAddress.objects.filter(user=olga, email="mallory@example.org", verified=False).exists()
    mail.outbox.clear()

    client.post("/accounts/email/", {"email": "mallory@example.org", "action_primary": "1"})
    Client().post("/accounts/password/reset/", {"email": "mallory@example.org"})

    assert not EmailAddress.objects.filter(user=olga, primary=True).exists()
    olga.refresh_from_db()
    assert olga.email == ""
    assert not mail.outbox


@pytest.mark.usefixtures("by_mail")
def test_an_address_that_an_administrator_typed_is_not_verified(olga: User) -> None:
    User.objects.filter(pk=olga.pk).update(email="olga@example.org")

    page = Client().post("/accounts/password/reset/", {"email": "olga@example.org"})

    assert page.status_code == 302
    assert not mail.outbox


@pytest.mark.usefixtures("by_mail")
def test_a_verified_address_gets_a_link_that_sets_the_password_once(client: Client, olga: User) -> None:
    sign_in(client)
    confirm_password(client)
    client.post("/accounts/email/", {"email": "olga@example.org", "action_add": "1"})
    client.post(mail_link("/accounts/confirm-email/"))
    assert EmailAddress.objects.get(user=olga).verified

    stranger = Client()
    stranger.post("/accounts/password/reset/", {"email": "Olga@example.org"})
    link = mail_link("/accounts/password/reset/key/")
    form = stranger.get(link).url
    stranger.post(form, {"password1": "another-Pass-77", "password2": "another-Pass-77"})

    olga.refresh_from_db()
    assert olga.check_password("another-Pass-77")
    assert client.get(HOME).status_code == 302, "the other session has ended"
    assert b"token" in Client().get(link).content


@pytest.mark.parametrize("state", ["unknown", "inactive", "without a password"])
@pytest.mark.usefixtures("by_mail")
def test_no_mail_goes_to_an_address_that_can_have_no_new_password(olga: User, state: str) -> None:
    if state != "unknown":
        EmailAddress.objects.create(user=olga, email="olga@example.org", verified=True, primary=True)
        olga.is_active = state != "inactive"
        if state == "without a password":
            olga.set_unusable_password()
        olga.save()

    page = Client().post("/accounts/password/reset/", {"email": "olga@example.org"})

    assert page.url == "/accounts/password/reset/done/"
    assert not mail.outbox


@pytest.mark.usefixtures("by_mail")
def test_somebody_elses_reset_request_keeps_nobody_from_a_second_factor(client: Client, olga: User) -> None:
    User.objects.filter(pk=olga.pk).update(email="olga@example.org")
    Client().post("/accounts/password/reset/", {"email": "olga@example.org"})
    EmailAddress.objects.get_or_create(user=olga, email="olga@example.org", defaults={"verified": False})
    sign_in(client)
    confirm_password(client)

    page = client.get("/accounts/2fa/totp/activate/")
    assert page.status_code == 200
    client.post("/accounts/2fa/totp/activate/", {"code": code_of(page.context["form"].secret)})

    assert Authenticator.objects.filter(user=olga, type="totp").exists()


def test_an_open_session_alone_connects_no_other_sign_on(client: Client, provider: Provider) -> None:
    sign_in(client)

    page = come_in(client, process="connect")

    assert page.url.startswith("/accounts/reauthenticate/")
    assert not SocialAccount.objects.exists()


def test_pages_with_secrets_are_not_stored(client: Client) -> None:
    sign_in(client)
    confirm_password(client)
    for name in ("2fa/totp/activate/", "2fa/", "password/change/", "3rdparty/"):
        page = client.get(f"/accounts/{name}")
        assert page.status_code == 200
        assert "no-store" in page.headers["Cache-Control"], name


@pytest.mark.parametrize("target", ["https://evil.example.org/", "//evil.example.org", "javascript:0", "/\\evil"])
def test_a_refused_next_leads_to_the_index(target: str) -> None:
    page = Client().post(
        f"{SIGN_IN}?{urlencode({'next': target})}", {"login": "olga", "password": RIGHT, "next": target}
    )

    assert page.url == HOME


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    claims = {"sub": "4711", "preferred_username": "sam", "email": "sam@example.org", "is_staff": True, "groups": ["x"]}
    with serve(claims) as found:
        kept = settings.SOCIALACCOUNT_PROVIDERS
        app = kept["openid_connect"]["APPS"][0] | {"settings": {"server_url": found.url}}
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {**kept["openid_connect"], "APPS": [app]}}
        yield found


def come_in(client: Client, **query: str) -> Any:
    """Go to the provider as a browser does, and come back."""
    left = client.post(f"/accounts/oidc/sso/login/?{urlencode({'next': HOME, **query})}")
    assert left.status_code == 302, left.content[:2000]
    parts = urlsplit(left.url)
    connection = HTTPConnection(parts.netloc)
    connection.request("GET", f"{parts.path}?{parts.query}")
    back = urlsplit(connection.getresponse().headers["Location"])
    connection.close()
    return client.get(f"{back.path}?{back.query}")


def test_single_sign_on_makes_a_user_without_any_right(client: Client, provider: Provider) -> None:
    come_in(client)

    sam = User.objects.get(username="sam")
    assert (sam.is_staff, sam.is_superuser, sam.has_usable_password()) == (False, False, False)
    assert not sam.groups.exists()
    assert not sam.memberships.exists()
    assert not sam.get_all_permissions()
    page = client.get(HOME)
    assert (page.status_code, client.get("/admin/login/").status_code) == (302, 403)
    assert "code_verifier" in dict(provider.asked)["/token"]


def test_the_same_person_is_the_same_user_and_keeps_what_he_was_given(client: Client, provider: Provider) -> None:
    come_in(client)
    User.objects.filter(username="sam").update(is_staff=True)

    other = Client()
    assert come_in(other).url == HOME

    assert other.get(HOME).status_code == 200
    assert User.objects.filter(username__startswith="sam").count() == 1


def test_an_address_or_a_name_of_somebody_else_takes_over_no_account(client: Client, provider: Provider) -> None:
    User.objects.filter(username="olga").update(email="olga@example.org", is_superuser=True)
    provider.claims |= {"preferred_username": "olga", "email": "olga@example.org", "email_verified": True}

    come_in(client)

    who = client.session.get("_auth_user_id")
    assert who is None or not User.objects.get(pk=who).is_superuser
    assert User.objects.get(username="olga").is_superuser


def test_an_answer_that_nobody_asked_for_signs_nobody_in(client: Client, provider: Provider) -> None:
    page = client.get("/accounts/oidc/sso/login/callback/?code=a-code&state=forged")

    assert page.status_code in (200, 401, 403)
    assert "_auth_user_id" not in client.session


def test_a_provider_that_does_not_answer_is_no_server_error(client: Client) -> None:
    page = client.post("/accounts/oidc/sso/login/")

    assert page.status_code == 503
    assert b"does not answer" in page.content


def test_the_page_that_leads_to_the_provider_may_go_there(client: Client, provider: Provider) -> None:
    page = client.get("/accounts/oidc/sso/login/")

    assert page.status_code == 200
    assert "form-action 'self' http://127.0.0.1:1" in page.headers["Content-Security-Policy"]
