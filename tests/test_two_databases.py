"""Notify on one database, receipts on another, one admin: real processes, as a site would run them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent
#: A process on two cores that others use, too.
PROCESS_S = 120

SET_UP = """
from django.core.management import call_command
from django.contrib.auth.models import User
from tests.factories import make_comment, make_contact, make_line, make_order

for alias in ("default", "notify", "receipts"):
    call_command("migrate", database=alias, verbosity=0)
User.objects.create_superuser("root")
order = make_order(using="notify")
line = make_line(order=order, using="notify")
make_comment(line=line, recipient=make_contact(using="notify"), using="notify")
make_line(order=make_order(using="receipts"), using="receipts")
"""
LOOK = """
import json
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.urls import reverse

client = Client(SERVER_NAME="localhost")
client.force_login(User.objects.get())
pages = {}
for model in admin.site._registry:
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    pages[model._meta.label] = client.get(address, secure=True).status_code
tables = {alias: connections[alias].introspection.table_names() for alias in connections}
print(json.dumps({"pages": pages, "tables": tables}))
"""


@pytest.fixture
def second_url(transactional_db: None) -> Iterator[str]:
    """Give the URL of a second, empty database on the tested server."""
    if connection.vendor == "sqlite":
        pytest.skip("two files of one SQLite prove nothing of two databases; the jobs of the servers do")
    tested = urlsplit(os.environ["DATABASE_URL"])
    # Named after the tested database: others may test on the same server.
    second = f"{connection.settings_dict['NAME']}_second"
    name = connection.ops.quote_name(second)

    def on_server(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    on_server(f"DROP DATABASE IF EXISTS {name}")
    on_server(f"CREATE DATABASE {name}")
    yield tested._replace(path=f"/{second}").geturl()
    connection.close()
    on_server(f"DROP DATABASE {name}")


@pytest.fixture
def run(second_url: str, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs Python with a site's environment and returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "COVERAGE_"))} | {
        "DATABASE_URL": f"sqlite:///{quote(str(tmp_path / 'default.sqlite3'))}",
        "NOTIFY_DATABASE_URL": f"sqlite:///{quote(str(tmp_path / 'notify.sqlite3'))}",
        "RECEIPTS_DATABASE_URL": second_url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DEBUG": "1",
    }

    def run(*arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=PROCESS_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def script(body: str) -> tuple[str, str]:
    return "-c", f"import django\ndjango.setup()\n{body}"


def test_each_engine_works_in_its_own_database_and_one_admin_shows_both(run: Any) -> None:
    run(*script(SET_UP))

    passed = json.loads(run("manage.py", "notify_pass", "--json"))
    plan = {"change_id": "CHG-1", "tenant": "acme", "targets": [{"id": 1, "revision": 4, "qty": 10}]}
    applied = json.loads(run("manage.py", "cancel_batch", "-", "--json", given=json.dumps(plan)))
    reconciled = json.loads(run("manage.py", "reconcile", "CHG-1", "--json"))
    seen = json.loads(run(*script(LOOK)))

    assert passed["outcome"] == "ok"
    assert {step["step"]: step["mails"] for step in passed["steps"]}["comment"] == 1
    assert applied == {"change_id": "CHG-1", "applied": True, "targets": 1}
    assert reconciled["changes"][0]["match"] == 1
    assert set(seen["pages"].values()) == {200}
    assert {label.split(".")[0] for label in seen["pages"]} >= {"notify", "receipts"}
    where = {
        table: [alias for alias, tables in seen["tables"].items() if table in tables]
        for table in ("notify_control", "receipts_changes", "portal_orderline", "auth_user")
    }
    assert where == {
        "notify_control": ["notify"],
        "receipts_changes": ["receipts"],
        "portal_orderline": ["default", "notify", "receipts"],
        "auth_user": ["default"],
    }
