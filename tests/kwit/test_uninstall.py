"""Taking Kwit out of a site: everything is named first, then it is gone; receipts only when that is said."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from kwit import uninstall
from kwit.uninstall import UninstallRefused, refuse_dependents
from tests.crashing import ROOT
from tests.test_two_databases import second_url  # noqa: F401

TABLES = {"notify_control", "notify_run_log", "receipts_changes", "receipts_audit", "kwit_token", "kwit_action"}
Manage = Callable[..., Any]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of an empty database."""
    if connection.vendor == "sqlite":
        return f"sqlite:///{tmp_path}/site.sqlite3"
    return str(request.getfixturevalue("second_url"))


@pytest.fixture
def manage(url: str) -> Manage:
    """Give a function that runs manage.py of a site with its own database, and returns what it printed."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "DATABASE_URL": url, "DEBUG": "1"}

    def run(*words: str, code: int = 0, stdin: str = "") -> Any:
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr

    run("migrate", "--no-input")
    return run


def look(manage: Manage) -> set[str]:
    """Return the tables that are there."""
    script = "from django.db import connection as c; print('tables', *c.introspection.table_names())"
    [line] = [line for line in manage("shell", "--no-imports", "-c", script).splitlines() if line.startswith("tables")]
    return set(line.split()[1:])


@pytest.mark.django_db(transaction=True)
def test_what_was_named_is_removed_and_the_rest_of_the_site_stays(manage: Manage) -> None:
    manage("kwit_groups", "--all-tenants")
    manage("notify_pass", "--json")
    before = look(manage)
    assert before >= TABLES

    named = manage("kwit_uninstall", "--dry-run", "--json")

    assert named["removed"] is False
    assert look(manage) == before
    assert set(named["tables"]["default"]) == {
        name for name in before if name.startswith(("kwit_", "notify_", "receipts_"))
    }
    assert {"notify.run_pass", "receipts.approve_plan", "kwit.view_metrics"} <= set(named["permissions"])
    assert "receipts.change" in named["content_types"]
    assert named["groups"] == ["all-tenants", "approver", "auditor", "operator", "viewer"]
    assert [Path(name).name for name in named["files"]] == (
        ["site.sqlite3.pass-lock"] if connection.vendor == "sqlite" else []
    )

    done = manage("kwit_uninstall", "--no-input", "--json")

    assert done == {**named, "removed": True}
    after = look(manage)
    assert before - after == set(named["tables"]["default"])
    assert {"auth_user", "portal_order"} <= after
    assert not any(Path(name).exists() for name in named["files"])
    again = manage("kwit_uninstall", "--dry-run", "--json")
    assert [again[name] for name in ("tables", "permissions", "content_types", "groups", "files")] == [
        {},
        [],
        [],
        [],
        [],
    ]
    manage("migrate", "--no-input")
    assert look(manage) == before


@pytest.mark.django_db(transaction=True)
def test_receipts_stay_unless_it_is_said(manage: Manage) -> None:
    script = "from tests.factories import make_line; print('id', make_line().pk)"
    [line] = [line for line in manage("shell", "--no-imports", "-c", script).splitlines() if line.startswith("id ")]
    plan = {"change_id": "CHG-1", "tenant": "acme", "targets": [{"id": int(line[3:]), "revision": 4, "qty": 10}]}
    manage("cancel_batch", "-", stdin=json.dumps(plan))
    before = look(manage)

    refused = manage("kwit_uninstall", "--no-input", "--json", code=1)
    assert "there are receipts" in refused["error"]
    assert look(manage) == before

    assert manage("kwit_uninstall", "--no-input", "--with-receipts", "--json")["has_receipts"] is True
    assert not look(manage) & TABLES


@pytest.mark.django_db(transaction=True)
def test_it_asks_first(manage: Manage) -> None:
    assert "nothing was removed" in manage("kwit_uninstall", stdin="yes\n", code=1)
    assert look(manage) >= TABLES
    assert "table notify_control" in manage("kwit_uninstall", stdin="remove\n")
    assert not look(manage) & TABLES


@pytest.mark.django_db
def test_an_app_whose_migrations_depend_on_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Step:
        app_label = "shop"

    monkeypatch.setattr(uninstall.MigrationExecutor, "migration_plan", lambda self, targets: [(Step(), True)])

    with pytest.raises(UninstallRefused, match="migrations of shop depend"):
        refuse_dependents("default", ["notify", "receipts", "kwit"])


@pytest.mark.django_db
def test_a_group_with_permissions_of_other_apps_is_kept() -> None:
    from django.contrib.auth.models import Group, Permission

    call_command("kwit_groups")
    Group.objects.get(name="viewer").permissions.add(Permission.objects.get(codename="view_user"))

    found = uninstall.take_inventory()

    assert (found.kept_groups, found.groups) == (["viewer"], ["approver", "auditor", "operator"])


@pytest.mark.django_db
def test_a_refusal_is_an_error_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: "no")
    monkeypatch.setattr("kwit.management.commands.kwit_uninstall.uninstall", None)

    with pytest.raises(CommandError, match="nothing was removed"):
        call_command("kwit_uninstall")
