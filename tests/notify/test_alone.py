"""A site with ``notify`` alone: no other app of ours, and none of the packages that only ``receipts`` needs."""

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.crashing import ROOT

SCRIPT = """
import sys

for name in {blocked!r}:
    sys.modules[name] = None  # an import of it is an ImportError

import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["notify"],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": {database!r}}}}},
    USE_TZ=True,
    SECRET_KEY="x",
)
django.setup()
from django.core.management import call_command, get_commands

call_command("migrate", verbosity=0)
call_command("check", fail_level="ERROR")
ours = sorted(name for name, app in get_commands().items() if app == "notify")
for name in ("notify_pass", "notify_deliver"):
    call_command(name, "--json")
call_command("notify_work", "--rounds", "1")
for name in ours:
    from django.core.management import load_command_class

    load_command_class("notify", name)
print("commands", *ours)
"""


def blocked() -> list[str]:
    """Return what only the extra of receipts brings, and what earlier versions needed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    modules = [name.partition(">")[0].strip() for name in project["optional-dependencies"]["receipts"]]
    assert not set(modules) & {name.partition(">")[0].strip() for name in project["dependencies"]}
    return [
        *modules,
        "portalocker",
        "pydantic",
        "python_calamine",
        "psycopg",
        "axes",
        "environ",
        "allauth",
        "celery",
        "receipts",
    ]


def test_notify_alone_migrates_passes_and_delivers(tmp_path: Path) -> None:
    script = SCRIPT.format(blocked=blocked(), database=str(tmp_path / "site.sqlite3"))

    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "notify_pass" in done.stdout
    assert "notify_explain" in done.stdout
