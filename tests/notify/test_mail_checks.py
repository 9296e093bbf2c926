"""What ``manage.py check`` and the doctor say of the settings of mail."""

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured

from notify.conf import Conf
from notify.transports.smtp import SmtpOptions

MINE = {"notify.E030", "notify.E031", "notify.E032", "notify.E033", "notify.E034", "notify.W030"}


def ids(found):
    return [one.id for one in found if one.id in MINE]


@pytest.mark.parametrize(
    ("sender", "found"),
    [
        ("Acme, Inc. <noreply@example.org>", ["notify.E030"]),
        ("a@example.org, b@example.org", ["notify.E030"]),
        ('"Acme, Inc." <noreply@example.org>', []),
        ("", []),
    ],
)
def test_a_sender_that_is_none_is_found(configure, sender, found):
    configure(FROM_EMAIL=sender)

    assert ids(run_checks(tags=["notify"])) == found
    assert ids(run_checks(tags=["kwit"])) == found


@pytest.mark.parametrize(
    ("address", "is_lawful"),
    [
        ("mailto:kwit@example.org?subject=stop%20{kind}", True),
        ("https://example.org/stop/{kind}", True),
        ("example.org/stop", False),
        ("javascript:alert(1)", False),
        ("https://exämple.org/", False),
        ("https://example.org/a b", False),
        ("https://example.org/>,<x", False),
        ("https:///stop", False),
        ("mailto:nobody", False),
        ("https://example.org/\r\nBcc:x", False),
    ],
)
def test_an_unsubscribe_address_that_makes_no_lawful_header_is_found(configure, address, is_lawful):
    configure(UNSUBSCRIBE=address)

    assert ids(run_checks(tags=["notify"])) == ([] if is_lawful else ["notify.E031"])


@pytest.mark.parametrize(
    ("options", "is_allowed", "found"),
    [
        ({"host": "mail.example.org"}, False, ["notify.E032"]),
        ({"host": "mail.example.org"}, True, ["notify.W030"]),
        ({"host": "mail.example.org", "use_tls": True}, False, []),
        ({"host": "mail.example.org", "use_ssl": True}, False, []),
        ({"host": "mail.example.org", "password": ""}, False, []),
        ({"host": "127.0.0.1"}, False, []),
        ({"host": "localhost"}, False, []),
        ({"host": "::1"}, False, []),
    ],
)
def test_a_password_in_clear_is_found_before_going_live(monkeypatch, configure, options, is_allowed, found):
    configure(TRANSPORT="smtp", SMTP_ALLOW_CLEAR_AUTH=is_allowed)
    asked = SmtpOptions(**{"username": "kwit", "password": "secret", **options})
    monkeypatch.setattr("notify.transports.factory.smtp_options", lambda alias: asked)

    assert ids(run_checks(tags=["notify"], include_deployment_checks=True)) == found
    assert ids(run_checks(tags=["notify"])) == []


@pytest.mark.parametrize("hours", ["22:00Z-07:00Z", "22:00+01:00-07:00", "22:00", "22:00-22:00", "late-early", 5])
def test_quiet_hours_that_no_clock_can_keep_are_refused(hours):
    with pytest.raises(ImproperlyConfigured, match="QUIET_HOURS"):
        Conf(QUIET_HOURS=hours)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("bounces@example.org", []),
        ("", []),
        ("bounces", ["notify.E033"]),
        ("Kwit <bounces@example.org>", ["notify.E033"]),
        ("b" * 27 + "@example.org", ["notify.E033"]),
    ],
)
def test_an_address_for_reports_that_takes_no_token_is_found(configure, address, found):
    configure(BOUNCE_ADDRESS=address)

    assert ids(run_checks(tags=["notify"])) == found


@pytest.mark.parametrize(
    ("site_url", "urls", "found"),
    [
        ("https://kwit.example.org", "config.urls", []),
        ("http://kwit.example.org", "config.urls", ["notify.E034"]),
        ("", "config.urls", ["notify.E034"]),
        ("https://kwit.example.org", "kwit.urls", ["notify.E034"]),
    ],
)
def test_links_that_cannot_be_made_are_found(configure, settings, site_url, urls, found):
    configure(UNSUBSCRIBE_LINKS=True, SITE_URL=site_url)
    settings.ROOT_URLCONF = urls

    assert ids(run_checks(tags=["notify"])) == found
