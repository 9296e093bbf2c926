"""
Take the pictures of the main pages for the README: ``python -m tests.browser.pictures``.

On a database of its own in a temporary folder, with the week of ``tests.browser.story``; same seed, same pages.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SIZE = {"width": 1100, "height": 760}


def main() -> int:
    """Fill a database, serve it, take the pictures."""
    with tempfile.TemporaryDirectory(prefix="kwit-pictures-") as scratch:
        os.environ.update(
            DATABASE_URL=f"sqlite:///{scratch}/kwit.sqlite3",
            DJANGO_SETTINGS_MODULE="tests.settings",
            DJANGO_ALLOW_ASYNC_UNSAFE="true",
        )
        import django

        django.setup()
        take()
    return 0


def take() -> None:
    """Take each picture in light, the dashboard in dark as well."""
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.management import call_command
    from django.test.testcases import LiveServerThread

    from notify.models import MailQueue, RunLog
    from tests.browser.chromium import chromium, find_chromium
    from tests.browser.story import OPERATE, PASSWORD, fill, make_user
    from tests.receipts.plan_people import SEE, address

    if find_chromium() is None:
        raise SystemExit("no chromium on this machine: apt-get install chromium")
    call_command("migrate", verbosity=0)
    fill(passes=1000)
    make_user("olga", *OPERATE, *SEE, "receipts.approve_plan", "kwit.see_all_tenants")
    plan = late_plan()
    server = LiveServerThread("localhost", StaticFilesHandler)
    server.daemon = True
    server.start()
    server.is_ready.wait()
    failed = RunLog.objects.filter(step=RunLog.WHOLE, outcome="error").latest("started_at")
    blocked = MailQueue.objects.filter(state="blocked")[0]
    pages = [
        ("dashboard", "/admin/", "light"),
        ("dashboard-dark", "/admin/", "dark"),
        ("runs", "/admin/notify/runlog/", "light"),
        ("pass", f"/admin/notify/runlog/{failed.pk}/change/", "light"),
        ("skipped", "/admin/notify/runlog/skipped/", "light"),
        ("mails", "/admin/notify/mailqueue/?state=blocked", "light"),
        ("plan", address(plan), "light"),
        ("mail", f"/admin/notify/mailqueue/{blocked.pk}/change/", "light"),
    ]
    OUT.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, address, scheme in pages:
            context = browser.new_context(
                base_url=f"http://localhost:{server.port}", viewport=SIZE, color_scheme=scheme, locale="en"
            )
            page = context.new_page()
            page.goto("/admin/login/")
            page.fill("#id_username", "olga")
            page.fill("#id_password", PASSWORD)
            page.click("input[type=submit]")
            page.goto(address)
            page.screenshot(path=OUT / f"{name}.png")
            context.close()
    server.terminate()


def late_plan() -> Any:
    """Make a plan some of whose rows have changed since it was written."""
    from portal.models import OrderLine
    from tests.factories import make_line
    from tests.receipts.plan_people import stored

    lines = [make_line(item="Hex bolt M8 x 40") for _ in range(8)]
    plan = stored(*lines, change_id="CHG-2026-0042", reason="The supplier is sold out until March.")
    OrderLine.objects.filter(pk=lines[2].pk).update(qty=7, revision=6)
    OrderLine.objects.filter(pk=lines[5].pk).update(state="accepted", revision=5)
    lines[7].delete()
    return plan


if __name__ == "__main__":
    sys.exit(main())
