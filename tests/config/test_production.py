"""The reference project as it is served: gunicorn with static files, and the files of deploy/ that start it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands
from django.db import connection

from tests.crashing import ROOT

DEPLOY = ROOT / "deploy"
#: What the proxy in front says.
HTTPS = {"X-Forwarded-Proto": "https"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def manage(environment: dict[str, str], *words: str) -> None:
    subprocess.run([sys.executable, "manage.py", *words], cwd=ROOT, env=environment, check=True, capture_output=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Serve the reference project as deploy/Dockerfile does; yield its environment."""
    if connection.vendor != "sqlite":
        pytest.skip("once is enough: a server in front of the same code")
    folder = tmp_path_factory.mktemp("served")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PYTEST_"))},
        "DATABASE_URL": f"sqlite:///{folder}/kwit.sqlite3",
        "SECRET_KEY": "x" * 60,
        "DEBUG": "0",
        "ALLOWED_HOSTS": "kwit.example.org",
        "STATIC_ROOT": str(folder / "static"),
        "STATIC_BY_APP": "1",
        "SECURE_PROXY_SSL_HEADER": "X-Forwarded-Proto: https",
        "BIND": f"127.0.0.1:{free_port()}",
        "WEB_CONCURRENCY": "1",
    }
    manage(environment, "migrate", "--no-input")
    manage(environment, "collectstatic", "--no-input")
    command = [sys.executable, "-m", "gunicorn", "--config", "deploy/gunicorn.conf.py", "config.wsgi"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while not healthy(environment):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.2)
        yield environment
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def healthy(environment: dict[str, str]) -> bool:
    done = subprocess.run([sys.executable, DEPLOY / "healthcheck.py"], env=environment, check=False)
    return done.returncode == 0


def get(environment: dict[str, str], path: str, **headers: str) -> tuple[HTTPResponse, str]:
    host, _, port = environment["BIND"].partition(":")
    with closing(HTTPConnection(host, int(port), timeout=20)) as asked:
        asked.request("GET", path, headers={"Host": "kwit.example.org", **headers})
        answer = asked.getresponse()
        return answer, answer.read().decode("utf-8", "replace")


def test_the_server_is_alive_and_ready_over_plain_http_and_its_health_check_says_so(server: dict[str, str]) -> None:
    answer, text = get(server, "/healthz/ready")

    assert (answer.status, json.loads(text)["status"]) == (200, "ok")
    assert healthy(server)
    assert not healthy({**server, "BIND": f"127.0.0.1:{free_port()}"})
    assert not healthy({**server, "ALLOWED_HOSTS": "elsewhere.example.org"})


def test_pages_are_redirected_to_https_unless_the_proxy_says_it_was(server: dict[str, str]) -> None:
    answer, _text = get(server, "/admin/login/")

    assert (answer.status, answer.headers["Location"]) == (301, "https://kwit.example.org/admin/login/")
    answer, text = get(server, "/admin/login/", **HTTPS)
    assert answer.status == 200
    assert "max-age=31536000" in answer.headers["Strict-Transport-Security"]
    assert re.search(r"/static/signing_in|/static/admin/css/login\.[0-9a-f]{12}\.css", text)


def test_static_files_are_sent_with_names_of_their_content_that_may_be_kept(server: dict[str, str]) -> None:
    manifest = json.loads((Path(server["STATIC_ROOT"]) / "staticfiles.json").read_text())["paths"]
    for name in ("kwit/kwit.css", "signing_in/page.css", "admin/css/base.css"):
        answer, text = get(server, f"/static/{manifest[name]}", **HTTPS)
        assert answer.status == 200
        assert "immutable" in answer.headers["Cache-Control"]
        assert "{" in text


def test_another_host_is_refused(server: dict[str, str]) -> None:
    answer, _text = get(server, "/healthz/live", Host="evil.example.org")

    assert answer.status == 400


def documents(path: Path) -> list[Any]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def test_actions_of_the_workflow_are_pinned_by_commit() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    used = re.findall(r"uses: (\S+)( # v[\d.]+)?", text)

    assert len(used) >= 8
    for name, version in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name), name
        assert version, f"{name}: say which version it is"
    [workflow] = documents(ROOT / ".github/workflows/ci.yml")
    assert workflow["permissions"] == {"contents": "read"}
    assert {"supply", "suite", "postgresql", "sqlserver"} == set(workflow["jobs"])
    steps = str(workflow["jobs"]["supply"]["steps"])
    assert "bandit" in steps
    assert "pip-audit" in steps


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.yaml")), ids=lambda path: path.name)
def test_deployment_files_are_yaml_and_call_commands_that_exist(path: Path) -> None:
    found = documents(path)

    assert found
    for name in re.findall(r"manage\.py[\", ]+(\w+)", path.read_text()):
        assert name in get_commands()


def test_every_way_to_schedule_runs_passes_and_delivers() -> None:
    ways = {
        "cron": (DEPLOY / "cron/kwit").read_text(),
        "systemd": (DEPLOY / "systemd/kwit-work.service").read_text(),
        "kubernetes": (DEPLOY / "kubernetes/deployment.yaml").read_text(),
        "compose": (DEPLOY / "compose.yaml").read_text(),
    }
    for name, text in ways.items():
        assert "notify_work" in text or ("notify_pass" in text and "notify_deliver" in text), name


def test_containers_run_as_nobody_in_particular_and_write_nothing() -> None:
    docker = (DEPLOY / "Dockerfile").read_text()
    [compose] = documents(DEPLOY / "compose.yaml")

    assert re.search(r"^USER 10001$", docker, re.MULTILINE)
    assert "HEALTHCHECK" in docker
    assert "runserver" not in docker
    assert {"postgresql", "mail", "migrate", "web", "worker"} == set(compose["services"])
    for name in ("migrate", "web", "worker"):
        assert compose["services"][name]["read_only"] is True
    for one in documents(DEPLOY / "kubernetes/deployment.yaml"):
        [container] = one["spec"]["template"]["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["runAsNonRoot"] is True


def has_docker() -> bool:
    if shutil.which("docker") is None:
        return False
    for words in (["docker", "info"], ["docker", "compose", "version"]):
        if subprocess.run(words, capture_output=True, check=False, timeout=20).returncode:
            return False
    return True


@pytest.mark.skipif(not has_docker(), reason="no Docker on this machine")
@pytest.mark.skipif(connection.vendor != "sqlite", reason="once is enough: it brings its own PostgreSQL")
def test_compose_brings_up_a_site_that_delivers_its_mail() -> None:
    environment = {**os.environ, "KWIT_PASSWORD": "Only-4-tests", "COMPOSE_PROJECT_NAME": "kwit-test"}
    compose = ["docker", "compose", "-f", "deploy/compose.yaml"]

    def run(*words: str) -> str:
        done = subprocess.run(
            [*compose, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def fetch(port: int, path: str) -> str:
        with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as asked:
            asked.request("GET", path)
            return asked.getresponse().read().decode()

    try:
        run("up", "--build", "--wait", "--detach")
        assert json.loads(fetch(8000, "/healthz/ready"))["status"] == "ok"
        assert "kwit" in fetch(8000, "/admin/login/").lower()
        run("exec", "-T", "web", "python", "manage.py", "seed_portal", "--comments", "20")
        until = time.monotonic() + 120
        while json.loads(fetch(8025, "/api/v1/messages"))["total"] == 0:
            assert time.monotonic() < until, run("logs", "worker")
            time.sleep(2)
    finally:
        subprocess.run([*compose, "down", "--volumes"], cwd=ROOT, env=environment, check=False, capture_output=True)
