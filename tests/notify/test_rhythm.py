"""Whether the job is alive: judged by the site's own rhythm on page, health check, metric and command, told outside."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection
from django.test import Client
from django.utils import timezone

from notify.clock import SKEW
from notify.conf import Conf, conf
from notify.dialects import dialect_of
from notify.pages.metrics import is_quiet, read, rhythm_of
from notify.passes import run_pass
from notify.passes.rhythm import MISSING_MAX, find_rhythm
from tests.browser.story import HELD
from tests.mails import log
from tests.notify.samples import Remark

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE = timedelta(minutes=1)


def passes(n: int, *, every: timedelta = MINUTE, ended: timedelta = timedelta(0)) -> None:
    """Log n good passes, the last one so long ago."""
    now = timezone.now()
    for number in range(n):
        log(started_at=now - ended - number * every)


def rhythm() -> Any:
    return find_rhythm(using=DEFAULT_DB_ALIAS, now=timezone.now(), settings=conf())


def test_a_site_with_a_pass_a_minute_is_quiet_after_some_minutes_and_another_after_hours() -> None:
    passes(10, ended=timedelta(minutes=10))

    assert rhythm().every == MINUTE
    assert rhythm().is_quiet


@pytest.mark.parametrize(("beyond", "quiet"), [(-timedelta(seconds=5), False), (timedelta(seconds=5), True)])
def test_three_passes_may_be_missing_and_not_more(beyond: timedelta, quiet: bool) -> None:
    passes(10, every=timedelta(hours=1), ended=MISSING_MAX * timedelta(hours=1) + SKEW + beyond)

    assert rhythm().every == timedelta(hours=1)
    assert rhythm().is_quiet == quiet


def test_the_setting_goes_before_the_rhythm(configure: Any) -> None:
    passes(10, ended=timedelta(minutes=10))
    configure(EXPECT_EVERY=timedelta(hours=1))

    assert not rhythm().is_quiet


def test_too_few_passes_make_no_rhythm_and_none_at_all_is_quiet() -> None:
    assert rhythm().is_quiet
    passes(3, ended=timedelta(hours=20))

    assert rhythm().every == conf().FULL_EVERY
    assert not rhythm().is_quiet


def test_passes_dead_for_twenty_hours_are_said_everywhere(admin_client: Client) -> None:
    passes(10, ended=timedelta(minutes=1))
    assert "All is well" in admin_client.get("/admin/").content.decode()
    assert check() == (0, False)
    assert quiet_metric() == 0
    assert is_quiet(rhythm_of(DEFAULT_DB_ALIAS), 1) == ""

    for row in list(type(log()).objects.all()):
        type(row).objects.filter(pk=row.pk).update(started_at=row.started_at - timedelta(hours=20))
    type(row).objects.filter(started_at__lt=timezone.now() - timedelta(days=40)).delete()

    page = admin_client.get("/admin/").content.decode()
    assert "All is well" not in page
    assert "The last good pass was 20\xa0hours" in page
    assert "one is expected every 1\xa0minute" in page
    assert check() == (1, True)
    assert quiet_metric() == 1
    assert "no pass has ended well" in is_quiet(rhythm_of(DEFAULT_DB_ALIAS), 60)
    answer = admin_client.get("/healthz/ready?pass_overdue=60")
    assert answer.status_code == 503
    assert answer.json()["checks"]["pass_overdue"]["status"] == "failing"


def check() -> tuple[int, bool]:
    """Return the exit code of ``notify_pass --check`` and its verdict."""
    out, code = StringIO(), 0
    try:
        call_command("notify_pass", "--check", "--json", stdout=out)
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, json.loads(out.getvalue())["is_quiet"]


def quiet_metric() -> float:
    [found] = [metric for metric in read(timezone.now()) if metric.name == "kwit_pass_is_quiet"]
    return float(found.samples[0][1])


def test_a_check_runs_no_pass() -> None:
    check()

    assert not type(log()).objects.filter(outcome="running").exists()
    assert type(log()).objects.count() == 2


def test_a_lock_that_was_held_at_the_last_skip_and_is_free_now_was_held(admin_client: Client) -> None:
    now = timezone.now()
    log(started_at=now - timedelta(minutes=9))
    for minute in (3, 2, 1):
        log(started_at=now - timedelta(minutes=minute), outcome="skipped", said=[HELD])

    page = admin_client.get("/admin/").content.decode()
    assert "the lock was held by" in page
    assert "it is free now" in page

    dialect = dialect_of(connection)
    answer = dialect.try_lock(connection)
    page = admin_client.get("/admin/").content.decode()
    dialect.unlock(connection, answer.token)
    assert "the lock is held by" in page
    assert "See whether that process still works" in page


@pytest.fixture
def service() -> Iterator[Any]:
    """Run a monitoring service of our own; it keeps what it hears."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
            path, _, rid = self.path.partition("?rid=")
            server.heard.append((path, rid, body))  # type: ignore[attr-defined]
            self.send_response(server.status)  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.heard, server.status = [], 200  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_start_and_success_of_a_pass_are_told(service: Any, configure: Any) -> None:
    configure(PING_URL=f"http://127.0.0.1:{service.server_port}/ping/1/")

    report = run_pass()

    rid = str(report.pass_id)
    assert service.heard == [("/ping/1/start", rid, ""), ("/ping/1", rid, "ok")]


def test_a_failure_is_told_as_one(service: Any, configure: Any, add_step: Any) -> None:
    configure(PING_URL=f"http://127.0.0.1:{service.server_port}/ping")
    add_step(type("Failing", (Remark,), {"template": "there-is-none"}))

    run_pass()

    assert [path for path, _rid, _body in service.heard] == ["/ping/start", "/ping/fail"]


def test_a_skipped_pass_is_neither_and_a_dry_run_is_nobodys_business(service: Any, configure: Any) -> None:
    configure(PING_URL=f"http://127.0.0.1:{service.server_port}/ping")
    dialect = dialect_of(connection)
    answer = dialect.try_lock(connection)

    run_pass()
    dialect.unlock(connection, answer.token)
    run_pass(is_dry_run=True)

    assert [path for path, _rid, _body in service.heard] == ["/ping/start"]


@pytest.mark.parametrize("status", [500, 0])
def test_a_service_that_is_away_fails_no_pass(
    service: Any, configure: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    port = service.server_port
    if status:
        service.status = status
    else:
        service.shutdown()
        service.server_close()
    configure(PING_URL=f"http://127.0.0.1:{port}/secret")

    assert run_pass().outcome == "ok"

    assert "NOTIFY_PING_URL cannot be told" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org", "example.org"])
def test_an_address_that_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="PING_URL"):
        Conf(PING_URL=url)
