"""Probes: alive without a database, ready only with every database, and never waiting for one."""

import socket
import threading
import time
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connections
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.utils import timezone

from kwit.probes import health
from notify.models import RunLog
from tests.factories import NOW
from tests.mails import log

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def forgotten():
    """Begin without answers from before."""
    health._probes.clear()
    yield
    health._probes.clear()


def probe(path: str, status: int = 200, **query: Any) -> Any:
    response = Client().get(path, query)
    assert response.status_code == status, response.content
    assert response["Cache-Control"] == "no-store"
    return response.json()


def test_a_whole_site_is_live_and_ready():
    assert probe("/healthz/live") == {"status": "ok", "checks": {}}
    assert probe("/healthz/ready") == {
        "status": "ok",
        "checks": {f"database:{alias}": {"status": "ok"} for alias in connections},
    }
    assert probe("/healthz")["checks"].keys() == {"process", *probe("/healthz/ready")["checks"]}


def test_a_database_that_does_not_answer_makes_it_unready_but_not_dead_and_names_nothing(monkeypatch):
    def silent(alias: str, _seconds: int) -> str:
        raise OperationalError("connection to db.internal:5432, user kwit, failed")

    monkeypatch.setattr(health, "unready", silent)

    found = probe("/healthz/ready", 503)

    assert found["checks"]["database:default"] == {"status": "failing", "problem": "does not answer"}
    assert "internal" not in str(found)
    probe("/healthz/live")


def test_it_asks_no_database_for_life_or_for_who_asks(monkeypatch, django_assert_num_queries):
    with django_assert_num_queries(0):
        probe("/healthz/live")
        probe("/healthz/ready")


def test_a_database_that_hangs_costs_a_worker_its_bound_and_one_thread(monkeypatch):
    release, asked = threading.Event(), []

    def hang(alias: str, _seconds: int) -> str:
        asked.append(alias)
        release.wait(30)
        return ""

    monkeypatch.setattr(health, "unready", hang)
    monkeypatch.setattr(health, "READY_S", 0.2)
    begun = time.monotonic()
    for _ in range(3):
        found = probe("/healthz/ready", 503)
    took_s = time.monotonic() - begun
    release.set()

    assert found["checks"]["database:default"]["problem"] == "does not answer in time"
    assert took_s < 10
    assert sorted(asked) == sorted(connections)


def test_a_database_that_was_never_migrated_is_unready(monkeypatch):
    monkeypatch.setattr(MigrationRecorder.Migration._meta, "db_table", "kwit_nowhere")

    assert "lacks migrations" in str(probe("/healthz/ready", 503))


def test_a_missing_migration_makes_it_unready(monkeypatch):
    monkeypatch.setattr(health, "leaves", lambda: (("notify", "9999_not_there"),))
    monkeypatch.setattr(health, "is_applied", lambda key, applied: key in applied)

    assert "lacks migrations" in str(probe("/healthz/ready", 503))


def test_a_migration_that_was_squashed_counts_as_applied_with_those_it_replaces():
    key = next(iter(health.leaves()))
    assert health.is_applied(key, {key})
    assert not health.is_applied(key, set())


@pytest.mark.django_db(transaction=True)
def test_the_last_good_pass_is_asked_for_on_request_only():
    assert "pass_within" in probe("/healthz/ready", 503, pass_within=60)["checks"]
    health._probes.clear()
    log(outcome="error")
    RunLog.objects.update(started_at=timezone.now())
    assert probe("/healthz/ready", 503, pass_within=60)["checks"]["pass_within"]["status"] == "failing"
    health._probes.clear()
    RunLog.objects.update(outcome="warning")
    assert probe("/healthz/ready", pass_within=60)["checks"]["pass_within"] == {"status": "ok"}
    health._probes.clear()
    RunLog.objects.update(started_at=NOW.replace(year=2020))
    assert "no pass has ended well" in str(probe("/healthz/ready", 503, pass_within=60))


@pytest.mark.parametrize("query", ["pass_within=0", "pass_within=x", "pass_within=1e9", "nothing=1", "pass_within=%00"])
def test_what_is_not_understood_is_refused(query):
    assert Client().get(f"/healthz/ready?{query}").status_code == 400


def test_an_answer_is_given_again_for_a_moment_whoever_asks(monkeypatch):
    asked = []
    monkeypatch.setattr(health, "unready", lambda alias, _seconds: asked.append(alias) or "")

    for _ in range(5):
        probe("/healthz/ready")

    assert sorted(asked) == sorted(connections)


def test_many_different_questions_keep_a_bounded_number_of_answers(monkeypatch):
    monkeypatch.setattr(health, "PROBES_MAX", 3)
    for seconds in range(1, 8):
        Client().get("/healthz/ready", {"pass_within": seconds})

    assert len(health._probes) <= 3


def test_a_probe_gives_up_on_a_server_that_takes_the_connection_and_says_nothing(settings):
    """The driver's own limit ends the thread; no web worker and no thread is lost for long."""
    if connections["default"].vendor == "sqlite":
        pytest.skip("a server is needed")
    from kwit.db.dialect import copy_with_timeout

    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = copy_with_timeout(connections["default"], timeout_s=2)
        connection.settings_dict |= {"HOST": "127.0.0.1", "PORT": str(server.getsockname()[1])}
        begun = time.monotonic()
        with pytest.raises(OperationalError):
            connection.ensure_connection()

    assert time.monotonic() - begun < 15


def test_plain_http_probes_are_not_redirected_in_production():
    import re

    source = (settings.BASE_DIR / "config/settings.py").read_text()
    [pattern] = re.findall(r'SECURE_REDIRECT_EXEMPT = \[r"(.*?)"\]', source)
    assert all(re.search(pattern, path) for path in ("healthz", "healthz/live", "healthz/ready"))
    assert not re.search(pattern, "healthzz")
