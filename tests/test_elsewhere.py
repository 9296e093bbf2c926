"""Commands and doctor say so when the named database is not the one where the site keeps the engine's rows."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import router

from notify import checks, mail_checks
from receipts import checks as receipts_checks

pytestmark = pytest.mark.django_db


class Away:
    """Keeps both engines in a database of their own."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return f"{model._meta.app_label}_home" if model._meta.app_label in ("notify", "receipts") else None


@pytest.fixture
def away(monkeypatch):
    """Send both engines elsewhere."""
    monkeypatch.setattr(router, "routers", [Away()])


@pytest.mark.parametrize(
    ("words", "home"),
    [
        (("notify_explain", "comment", "1"), "notify_home"),
        (("notify_retry", "--all"), "notify_home"),
        (("reconcile", "--all"), "receipts_home"),
    ],
)
def test_a_command_warns_on_stderr_when_the_engine_is_elsewhere(away, words, home):
    out, err = StringIO(), StringIO()

    call_command(*words, "--database", "default", "--json", stdout=out, stderr=err)

    assert f"in {home!r}" in err.getvalue()
    json.loads(out.getvalue())


def test_it_is_silent_where_the_engine_is(capsys):
    err = StringIO()
    call_command("notify_explain", "comment", "1", "--database", "default", "--json", stdout=StringIO(), stderr=err)
    call_command("reconcile", "--all", "--json", stdout=StringIO(), stderr=err)

    assert err.getvalue() == ""


def test_doctor_names_the_database_that_was_not_looked_into(away):
    found = run_checks(tags=["kwit"], include_deployment_checks=True, databases=["default"])

    assert {"notify.W004", "receipts.W036"} <= {one.id for one in found}
    assert checks.check_home(databases=["notify_home"]) == []
    assert receipts_checks.check_home(databases=["receipts_home", "default"]) == []
    assert checks.check_home(databases=None) == receipts_checks.check_home(databases=None) == []


@pytest.mark.parametrize(
    ("timeout", "lease_s", "is_found"), [(None, 119, True), (None, 120, False), (10, 19, True), (10, 20, False)]
)
def test_a_lease_shorter_than_twice_the_smtp_timeout_is_a_finding(settings, timeout, lease_s, is_found):
    from datetime import timedelta

    from notify.transports.smtp import SmtpOptions, SmtpTransport

    settings.NOTIFY = {"LEASE": timedelta(seconds=lease_s)}
    found = mail_checks.find_transport
    mail_checks.find_transport = lambda conf: SmtpTransport(SmtpOptions(timeout=timeout))
    try:
        assert [one.id for one in mail_checks.check_lease(None)] == (["notify.W005"] if is_found else [])
    finally:
        mail_checks.find_transport = found


def test_the_reference_site_s_lease_is_long_enough():
    assert mail_checks.check_lease(None) == []
