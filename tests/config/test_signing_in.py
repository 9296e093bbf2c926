"""Who guesses passwords is kept out for a while, and learns nothing meanwhile."""

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from config.settings import lock_parameters, proxy_header
from config.signing_in import client_address, client_name

pytestmark = pytest.mark.django_db
SIGN_IN = "/admin/login/"
RIGHT, WRONG = "a right password", "a wrong one"


@pytest.fixture(autouse=True)
def olga(db: None) -> User:
    return User.objects.create_user("olga", password=RIGHT, is_staff=True)


def sign_in(name: str = "olga", password: str = RIGHT, **extra: Any) -> Any:
    """Post the form as a new browser does."""
    return Client().post(SIGN_IN, {"username": name, "password": password, "next": "/admin/"}, **extra)


def lock(name: str = "olga", **extra: Any) -> Any:
    """Fail as often as it takes."""
    return [sign_in(name, WRONG, **extra) for _ in range(5)][-1]


def test_the_right_password_signs_in_and_a_wrong_one_does_not() -> None:
    assert sign_in().url == "/admin/"
    page = sign_in(password=WRONG)
    assert page.status_code == 200
    assert b"errornote" in page.content


def test_four_wrong_passwords_do_not_lock_and_the_fifth_does() -> None:
    assert {sign_in(password=WRONG).status_code for _ in range(4)} == {200}
    assert sign_in(password=WRONG).status_code == 429


def test_a_locked_user_does_not_learn_whether_the_password_was_right() -> None:
    pages = [lock(), sign_in(password=WRONG), sign_in(password=RIGHT)]

    assert {page.status_code for page in pages} == {429}
    assert len({page.content for page in pages}) == 1
    assert not any("sessionid" in page.cookies for page in pages)


def test_nobody_learns_from_a_lock_whether_there_is_such_a_user() -> None:
    known, unknown = lock("olga"), lock("nobody")

    assert known.status_code == unknown.status_code == 429
    assert known.content == unknown.content


def test_the_page_says_how_long_and_has_the_strict_policy() -> None:
    page = lock()
    text = page.content.decode().replace("\xa0", " ")

    assert "Try again in 15 minutes" in text
    assert page.headers["Retry-After"] == "900"
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=", text)


def test_writing_the_name_otherwise_gives_no_further_attempts() -> None:
    for name in ("olga", "OLGA", "Olga ", "\uff4f\uff4c\uff47\uff41", "oLga"):
        page = sign_in(name, WRONG)

    assert page.status_code == 429
    assert sign_in("olga").status_code == 429


def test_the_lock_is_for_a_name_at_an_address() -> None:
    lock()

    assert sign_in(REMOTE_ADDR="192.0.2.7").status_code == 302
    assert sign_in("nobody", WRONG).status_code == 200


def test_a_lock_by_either_holds_everywhere_and_for_everybody(settings: Any) -> None:
    settings.AXES_LOCKOUT_PARAMETERS = lock_parameters("username, ip_address")
    lock()

    assert sign_in(REMOTE_ADDR="192.0.2.7").status_code == 429
    assert sign_in("nobody", WRONG).status_code == 429


def test_it_is_over_after_the_cool_off_and_attempts_meanwhile_do_not_make_it_longer(settings: Any) -> None:
    lock()
    moment = AccessAttempt.objects.get().attempt_time
    assert sign_in().status_code == 429
    assert AccessAttempt.objects.get().attempt_time == moment

    AccessAttempt.objects.update(attempt_time=moment - settings.AXES_COOLOFF_TIME - timedelta(seconds=1))

    assert sign_in().status_code == 302


def test_who_signs_in_begins_anew() -> None:
    for _ in range(4):
        sign_in(password=WRONG)
    assert sign_in().status_code == 302

    assert {sign_in(password=WRONG).status_code for _ in range(4)} == {200}


def test_no_password_is_kept() -> None:
    lock()

    row = AccessAttempt.objects.get()
    assert "password=" in row.post_data
    assert WRONG not in f"{row.post_data} {row.get_data}"


@pytest.mark.parametrize(
    ("count", "header", "address"),
    [
        (0, "203.0.113.9", "10.0.0.1"),
        (1, "203.0.113.9", "203.0.113.9"),
        (1, "6.6.6.6, 203.0.113.9", "203.0.113.9"),
        (2, "6.6.6.6, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        (2, "203.0.113.9", "10.0.0.1"),
        (1, "", "10.0.0.1"),
        (1, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        (1, "::ffff:203.0.113.9", "203.0.113.9"),
        (1, "<script>", None),
    ],
)
def test_only_what_our_own_proxies_wrote_says_where_somebody_is(
    settings: Any, count: int, header: str, address: str | None
) -> None:
    settings.PROXY_COUNT = count
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", HTTP_X_FORWARDED_FOR=header)

    assert client_address(request) == address


def test_a_header_of_the_clients_own_gives_no_further_attempts() -> None:
    for number in range(5):
        page = sign_in(password=WRONG, HTTP_X_FORWARDED_FOR=f"203.0.113.{number}")

    assert page.status_code == 429


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "olga' OR 1=1 --", "<script>"])
def test_no_name_breaks_the_sign_in(name: str) -> None:
    assert {sign_in(name, WRONG).status_code for _ in range(6)} <= {200, 429}
    assert len(client_name(RequestFactory().get("/"), {"username": name})) <= 255


def test_settings_that_nobody_would_read_are_refused() -> None:
    from django.core.exceptions import ImproperlyConfigured

    assert lock_parameters("username+ip_address") == [["username", "ip_address"]]
    assert proxy_header("X-Forwarded-Proto: https") == ("HTTP_X_FORWARDED_PROTO", "https")
    for call in (lambda: lock_parameters("name"), lambda: proxy_header("X-Forwarded-Proto")):
        with pytest.raises(ImproperlyConfigured):
            call()


def test_a_form_from_before_the_last_sign_in_is_refused_in_words_under_the_strict_policy(olga: User) -> None:
    client = Client(enforce_csrf_checks=True, headers={"accept-language": "pl"})
    client.force_login(olga)

    page = client.post("/admin/logout/")

    text = page.content.decode()
    assert page.status_code == 403
    assert 'lang="pl"' in text
    assert "/admin/" in text
    # What Django has of its own stands in an inline style, which the policy forbids.
    assert "<style" not in text
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("target", ["https://evil.example.org/", "//evil.example.org", "javascript:0", "/\\evil", ""])
def test_a_refused_next_leads_to_the_first_page(target: str) -> None:
    form = {"username": "olga", "password": RIGHT, "next": target}

    page = Client().post(f"{SIGN_IN}?{urlencode({'next': target})}", form)

    assert page.url == "/admin/"
    assert Client().post(SIGN_IN, {"username": "olga", "password": RIGHT}).url == "/admin/"
