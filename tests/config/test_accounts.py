"""Accounts are on or off when the site starts, so each way has a process of its own."""

import os
import subprocess
import sys

import pytest
from django.db import connection

from tests.crashing import ROOT

pytestmark = pytest.mark.skipif(
    connection.vendor != "sqlite",
    reason="once is enough: the tables of accounts are allauth's own, and no SQL here is ours",
)


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_with_accounts_on_the_tests_of_accounts_pass() -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/accounts"]
    done = run(*command, DJANGO_SETTINGS_MODULE="tests.settings_accounts", PYTEST_ADDOPTS="")

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize(("accounts", "is_imported"), [("0", False), ("1", True)])
def test_nothing_of_allauth_is_imported_unless_accounts_are_on(accounts: str, is_imported: bool) -> None:
    script = "import django, sys; django.setup(); from django.urls import get_resolver; get_resolver().url_patterns; "
    script += "print(any(name.partition('.')[0] == 'allauth' for name in sys.modules))"
    done = run("-c", script, DJANGO_SETTINGS_MODULE="config.settings", ACCOUNTS=accounts, DEBUG="1")

    assert done.stdout.strip() == str(is_imported), done.stderr
