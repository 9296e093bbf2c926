"""The browser, a page that fails on any violation of the policy, and people to sign in."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.chromium import KWIT, chromium, find_chromium
from tests.browser.story import PASSWORD

HERE = Path(__file__).parent
# Playwright runs an event loop in this thread; the tests use the ORM beside it, never inside it.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip where there is no browser, and on all databases but one: the pages are the same."""
    reason = ""
    if find_chromium() is None:
        reason = "no chromium on this machine: apt-get install chromium"
    elif connection.vendor != "sqlite":
        reason = "browser tests run on SQLite only"
    for item in items:
        if reason and item.path.parent == HERE:
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start one browser for all tests."""
    with chromium() as running:
        yield running


@pytest.fixture
def open_page(browser: Browser, live_server: Any) -> Iterator[Callable[..., Page]]:
    """Return a way to open a page as somebody; violations of the policy and errors of scripts fail the test."""
    contexts: list[BrowserContext] = []
    violations: list[str] = []

    def open_as(user: User | None, address: str = "/admin/", **options: Any) -> Page:
        context = browser.new_context(base_url=live_server.url, viewport=options.pop("viewport", KWIT), **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: violations.append(message.text) if is_violation(message) else None)
        page.on("pageerror", lambda error: violations.append(str(error)))
        if user is not None:
            page.goto("/admin/login/")
            page.fill("#id_username", user.username)
            page.fill("#id_password", PASSWORD)
            page.click("input[type=submit]")
        page.goto(address)
        return page

    open_as.violations = violations  # type: ignore[attr-defined]  # for the positive control
    yield open_as
    for context in contexts:
        context.close()
    assert violations == []


def is_violation(message: Any) -> bool:
    """Whether the console speaks of the policy."""
    return "Content Security Policy" in message.text or "Content-Security-Policy" in message.text
