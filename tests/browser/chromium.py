"""A real Chromium, as Debian packages it, driven without a download of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Browser, Page, sync_playwright

from tests.programs import find_program

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE = {"width": 390, "height": 844}
KWIT = {"width": 1280, "height": 900}
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
#: Findings of these weights fail a test.
SERIOUS = ("serious", "critical")


def find_chromium() -> str | None:
    """Return the path of a Chromium, None when there is none. Raises: LookupError where nothing may be skipped."""
    return find_program(*NAMES)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser for the time of a ``with``."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def axe_findings(page: Page) -> list[str]:
    """Return what axe finds on the page that is serious; run from outside, so that the policy stays as it is."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations'], preload: false})")
    return [
        f"{one['id']}: {one['help']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]
