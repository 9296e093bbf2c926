"""The pages of the accounts in a real browser: accessible, in the site's style, and under the strict policy."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection

from tests.accounts.test_accounts import RIGHT, code_of
from tests.browser.chromium import axe_findings, find_chromium

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(find_chromium() is None, reason="no chromium on this machine: apt-get install chromium"),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="browser tests run on SQLite only"),
]


def test_somebody_sets_up_a_second_factor_and_signs_in_with_it(open_page: Callable[..., Any]) -> None:
    cache.clear()
    User.objects.create_user("olga", password=RIGHT, is_staff=True)
    page = open_page(None, "/admin/")
    problems = []

    def look() -> None:
        page.wait_for_load_state("networkidle")
        problems.extend(f"{page.url} {finding}" for finding in axe_findings(page))

    look()
    page.fill("#id_login", "olga")
    page.fill("#id_password", RIGHT)
    page.click("form button[type=submit]")
    page.click("text=Two-factor authentication")
    look()
    page.click("text=Activate")
    look()
    page.fill("#id_password", RIGHT)
    page.click("form button[type=submit]")
    look()
    secret = page.inner_text("main code, #content code")
    page.fill("#id_code", code_of(secret))
    page.click("#content form button[type=submit]")
    look()
    codes = page.input_value("#recovery_codes").split()

    page.context.clear_cookies()
    page.goto("/admin/")
    page.fill("#id_login", "olga")
    page.fill("#id_password", RIGHT)
    page.click("form button[type=submit]")
    look()
    page.fill("#id_code", codes[0])
    page.click("#content form button[type=submit]")

    assert page.url.endswith("/admin/")
    assert problems == []
