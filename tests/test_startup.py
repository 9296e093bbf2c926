"""What a command that is started each minute must not import."""

import json
import os
import subprocess
import sys

import pytest

from tests.test_docs import ROOT

#: What takes long to import and is for pages, plans, mails or accounts.
HEAVY = (
    "pydantic",
    "regex",
    "allauth",
    "python_calamine",
    "openpyxl",
    "defusedxml",
    "tqdm",
    "smtplib",
    "redis",
    "portalocker",
)
OURS = (
    "notify.pages",
    "receipts.pages",
    "portal.pages",
    "kwit.admin.",
    "kwit.api",
    "receipts.plans.workbook",
)

PROGRAM = """
import json, sys
from django.core.management import execute_from_command_line
sys.argv = ["manage.py", *json.loads(sys.argv[1])]
try:
    execute_from_command_line(sys.argv)
finally:
    print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    path = tmp_path_factory.mktemp("startup") / "kwit.sqlite3"
    given = {"DJANGO_SETTINGS_MODULE": "config.settings", "DATABASE_URL": f"sqlite:///{path}", "SECRET_KEY": "x"}
    environment = os.environ | given
    command = [sys.executable, "-m", "django", "migrate", "-v0"]
    subprocess.run(command, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}, check=True)
    return environment


def modules_of(environment: dict[str, str], *arguments: str) -> list[str]:
    """Return what a process has imported that ran a command."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def needless(modules: list[str]) -> list[str]:
    return [name for name in modules if name.split(".")[0] in HEAVY or name.startswith(OURS)]


def test_a_pass_imports_no_page_no_reader_and_no_transport(environment):
    modules = modules_of(environment, "notify_pass")

    assert "notify.passes.runner" in modules
    assert needless(modules) == []


def test_a_command_that_checks_the_whole_site_imports_them(environment):
    """The positive control: they are found where they are."""
    found = needless(modules_of(environment, "check"))

    assert {"notify.pages.runs", "receipts.pages.plans", "smtplib"} <= set(found)
