"""System checks of the site: what check and check --deploy say, and when they say nothing."""

from typing import Any

import pytest
from django.core.checks import run_checks

CLEAN = {"kwit.W003", "kwit.W004", "kwit.W005", "notify.W009", "receipts.W009"}


def found(*, deploy: bool = False) -> set[str]:
    return {str(one.id) for one in run_checks(include_deployment_checks=deploy, databases=[])} & CLEAN


@pytest.mark.parametrize(
    ("variable", "setting", "check"),
    [
        ("NOTIFY_NOT_BEFORE", "NOTIFY", "notify.W009"),
        ("NOTIFY_CHUNK_ROWS", "NOTIFY", "notify.W009"),
        ("RECEIPTS_MAX_TARGETS", "RECEIPTS", "receipts.W009"),
        ("METRICS_TOKEN", "KWIT", "kwit.W003"),
        ("KWIT_TOKEN_DAYS", "KWIT", "kwit.W003"),
    ],
)
def test_a_variable_that_no_setting_reads_is_named(
    monkeypatch: pytest.MonkeyPatch, settings: Any, variable: str, setting: str, check: str
) -> None:
    monkeypatch.setenv(variable, "2026-01-31")
    setattr(settings, setting, {})

    [message] = [one for one in run_checks(databases=[]) if one.id == check]

    assert variable in message.msg
    assert setting in str(message.hint)
    assert "2026-01-31" not in f"{message.msg}{message.hint}", "it may be a secret"


def test_a_variable_that_is_read_or_empty_or_somebody_elses_is_no_matter(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.NOTIFY = {"NOT_BEFORE": None}
    monkeypatch.setenv("NOTIFY_NOT_BEFORE", "2026-01-31")
    monkeypatch.setenv("NOTIFY_BREAKER", "")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")

    assert "notify.W009" not in found()


def test_pages_without_the_middleware_are_a_finding_of_check_deploy(settings: Any) -> None:
    assert "kwit.W004" not in found(deploy=True)
    settings.MIDDLEWARE = [one for one in settings.MIDDLEWARE if "StrictPolicy" not in one]

    assert "kwit.W004" in found(deploy=True)
    assert "kwit.W004" not in found()


def test_tokens_without_a_limit_are_a_finding_of_check_deploy(settings: Any) -> None:
    assert "kwit.W005" not in found(deploy=True)
    settings.KWIT = {**settings.KWIT, "TOKEN_DAYS": 0}

    assert "kwit.W005" in found(deploy=True)
