"""Probes: alive without a database, ready only with every database, and never waiting for one."""

import dataclasses
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, ProgrammingError, connections
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
    def silent(alias: str) -> str:
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

    def hang(alias: str) -> str:
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


QUERIES = ["pass_within=0", "pass_within=x", "pass_within=1e9", "nothing=1", "pass_within=%00", "pass_within=%C2%B2"]
QUERIES += ["pass_within=1&pass_within=2", "pass_within=", "pass_within=99999999999999999999"]


@pytest.mark.parametrize("query", QUERIES)
def test_what_is_not_understood_is_refused(query):
    assert Client().get(f"/healthz/ready?{query}").status_code == 400


def test_an_answer_is_given_again_for_a_moment_whoever_asks(monkeypatch):
    asked = []
    monkeypatch.setattr(health, "unready", lambda alias: asked.append(alias) or "")

    for _ in range(5):
        probe("/healthz/ready")

    assert sorted(asked) == sorted(connections)


@pytest.mark.django_db(transaction=True)
def test_four_hundred_different_questions_at_once_make_one_connection_per_database(monkeypatch):
    opened, plain = [], health.copy_with_timeout

    def copy(connection: Any, *, timeout_s: int) -> Any:
        opened.append(connection.alias)
        return plain(connection, timeout_s=timeout_s)

    monkeypatch.setattr(health, "copy_with_timeout", copy)
    monkeypatch.setattr(health, "KEPT_S", 600.0)

    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(Client().get, "/healthz/ready", {"pass_within": n}) for n in range(1, 401)]
        answers = [one.result() for one in asked]

    assert sorted(opened) == sorted(connections)
    assert {answer.status_code for answer in answers} == {503}
    assert answers[6].json()["checks"]["pass_within"]["problem"] == "no pass has ended well within 7 seconds"


@pytest.mark.django_db(transaction=True)
def test_one_answer_serves_every_number_of_seconds(monkeypatch):
    monkeypatch.setattr(health, "KEPT_S", 600.0)
    log(outcome="ok")
    RunLog.objects.update(started_at=timezone.now() - timedelta(seconds=100))

    statuses = [Client().get("/healthz/ready", {"pass_within": n}).status_code for n in (50, 500, 50)]

    assert statuses == [503, 200, 503]


@pytest.mark.django_db(transaction=True)
def test_a_value_that_cannot_be_read_fails_its_own_check_only(monkeypatch):
    def broken(alias: str) -> Any:
        raise ProgrammingError("relation notify_run_log does not exist")

    question = health._questions["pass_within"]
    monkeypatch.setitem(health._questions, "pass_within", dataclasses.replace(question, measure=broken))

    assert probe("/healthz/ready")["status"] == "ok"
    found = probe("/healthz/ready", 503, pass_within=60)["checks"]
    assert found["pass_within"]["problem"] == "cannot be read: ProgrammingError"
    assert found["database:default"] == {"status": "ok"}


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
