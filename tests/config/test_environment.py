"""A variable that cannot be read is one clear line, with its name and without secrets."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured

from config.environment import Environment
from tests.crashing import ROOT

READ = {
    "NOTIFY_BREAKER": lambda env: env.int("NOTIFY_BREAKER", default=500),
    "NOTIFY_LOOKBACK": lambda env: env.duration("NOTIFY_LOOKBACK", default="1 day"),
    "NOTIFY_NOT_BEFORE": lambda env: env.moment("NOTIFY_NOT_BEFORE"),
    "METRICS_OPEN": lambda env: env.bool("METRICS_OPEN", default=False),
    "DATABASE_URL": lambda env: env.database("DATABASE_URL", default="sqlite:////tmp/x.sqlite3"),
    "EMAIL_URL": lambda env: env.email_url("EMAIL_URL", default="consolemail://"),
}


def read(monkeypatch: pytest.MonkeyPatch, name: str, value: str | None) -> object:
    monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv(name, value)
    return READ[name](Environment())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NOTIFY_BREAKER", "abc"),
        ("NOTIFY_BREAKER", ""),
        ("NOTIFY_BREAKER", "1.5"),
        ("NOTIFY_LOOKBACK", "xyz"),
        ("NOTIFY_LOOKBACK", "day"),
        ("NOTIFY_LOOKBACK", "24:00"),
        ("NOTIFY_LOOKBACK", "1 24:00"),
        ("NOTIFY_NOT_BEFORE", "2026-13-13"),
        ("NOTIFY_NOT_BEFORE", "soon"),
        ("METRICS_OPEN", "yess"),
        ("DATABASE_URL", "nonsense"),
        ("DATABASE_URL", "foo://x"),
        ("DATABASE_URL", "postgresql://kwit:geheim@host:abc/x"),
        ("DATABASE_URL", "postgresql://kwit:geheim/1@host/x"),
        ("DATABASE_URL", "mssql://kwit:geheim@host:99999999/x"),
        ("EMAIL_URL", "foo"),
        ("EMAIL_URL", "smtp://kwit:geheim/1@host"),
    ],
)
def test_what_cannot_be_read_names_the_variable_and_no_secret(monkeypatch, name, value):
    with pytest.raises(ImproperlyConfigured, match=f"^{name}: ") as found:
        read(monkeypatch, name, value)

    assert "geheim" not in str(found.value)
    assert "\n" not in str(found.value)


def test_what_can_be_read_is(monkeypatch):
    assert read(monkeypatch, "NOTIFY_BREAKER", "7") == 7
    assert read(monkeypatch, "NOTIFY_LOOKBACK", "2 days") == timedelta(days=2)
    assert read(monkeypatch, "NOTIFY_LOOKBACK", None) == timedelta(days=1)
    assert read(monkeypatch, "NOTIFY_NOT_BEFORE", "") is None
    assert [read(monkeypatch, "METRICS_OPEN", text) for text in ("1", "on", "True", "0", "off", None)] == [
        *(True, True, True),
        *(False, False, False),
    ]
    assert read(monkeypatch, "DATABASE_URL", "postgresql://u:p@h:5432/x")["PORT"] == 5432
    assert read(monkeypatch, "DATABASE_URL", "")["NAME"] == "/tmp/x.sqlite3"
    assert read(monkeypatch, "EMAIL_URL", "smtp+tls://u:p@h:587")["EMAIL_PORT"] == 587


def test_a_command_ends_with_that_one_line():
    environment = os.environ | {"DEBUG": "1", "NOTIFY_BREAKER": "abc", "DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [sys.executable, "manage.py", "notify_pass"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert done.stderr == "The settings are wrong: NOTIFY_BREAKER: 'abc' is not a whole number\n"


def test_a_folder_that_cannot_be_made_for_the_database_is_one_line_too(tmp_path):
    (tmp_path / "file").touch()
    url = f"sqlite:///{tmp_path}/file/kwit.sqlite3"
    environment = os.environ | {"DEBUG": "1", "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [sys.executable, "manage.py", "notify_pass"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    said = f"The settings are wrong: DATABASE_URL: no folder {tmp_path}/file can be made: "
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
