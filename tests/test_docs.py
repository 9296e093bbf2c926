"""The documentation says what the code has: every name, every link, every statement."""

import ast
import importlib
import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.db import connection, models

from notify.conf import Conf
from notify.models import AttemptOutcome, Control, HeldFor, MailState, Outcome
from portal.models import AdviceState, LineState
from tests.crashing import ROOT

#: The apps that the reference describes.
OURS = [apps.get_app_config(label) for label in ("kwit", "notify", "receipts", "portal")]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
REFERENCES = sorted((ROOT / "docs").glob("reference*.md"))
REFERENCE = "\n".join(page.read_text() for page in REFERENCES)
DJANGO_OPTIONS = {
    *("-h", "--help", "--version", "-v", "--verbosity", "--settings", "--pythonpath", "--traceback"),
    *("--no-color", "--force-color", "--skip-checks"),
}


def name_of(page: Path) -> str:
    """Return a page's path for people."""
    return str(page.relative_to(ROOT))


def our_commands() -> list[str]:
    """Return the names of this project's commands."""
    names = {config.name for config in OURS}
    return sorted([name for name, app in get_commands().items() if app in names] + ["doctor"])


def parser_of(command: str) -> ArgumentParser:
    """Return the parser of a command, ours or Django's."""
    app = get_commands()[command]
    loaded = load_command_class(app, command) if isinstance(app, str) else app
    return loaded.create_parser("manage.py", command)


def options_of(command: str) -> set[str]:
    """Return the options that a command has of its own."""
    return {name for action in parser_of(command)._actions for name in action.option_strings} - DJANGO_OPTIONS


def section(title: str) -> str:
    """Return the part of the reference below a heading, up to the next one."""
    found = re.search(rf"^### `{re.escape(title)}`\n(.*?)(?=^##|\Z)", REFERENCE, re.M | re.S)
    assert found, f"docs/reference.md has no section ### `{title}`"
    return found[1]


def blocks(page: Path, language: str) -> list[str]:
    """Return a page's code blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)


@pytest.mark.parametrize("command", our_commands())
def test_each_command_takes_a_database_and_answers_programs(command):
    taken = {name for action in parser_of(command)._actions for name in action.option_strings}

    assert {"--database", "--json"} <= taken


@pytest.mark.parametrize("command", our_commands())
def test_each_command_is_in_the_reference_with_each_option(command):
    text = section(command)

    assert sorted(name for name in options_of(command) if f"`{name}" not in text) == []


@pytest.mark.parametrize("command", our_commands())
def test_the_reference_names_no_option_that_a_command_lacks(command):
    named = set(re.findall(r"^\| `(--[a-z0-9-]+)", section(command), re.M))

    assert named - options_of(command) == set()


@pytest.mark.parametrize("command", [name for name in our_commands() if name != "demo"])
def test_each_command_prints_json_and_refuses_a_database_that_the_site_has_not(command):
    assert {"--database", "--json"} <= options_of(command)
    with pytest.raises(CommandError, match="--database: invalid choice: 'nowhere'"):
        call_command(command, "--database", "nowhere")


def test_each_setting_is_in_the_reference_with_its_default():
    for field in fields(Conf):
        (row,) = re.findall(rf"^\| `{field.name}` \|.*$", REFERENCE, re.M)
        default = str(field.default).removesuffix(", 0:00:00")
        assert row.rstrip(" |").endswith(default) if default else row.rstrip().endswith("| |"), row


@pytest.mark.parametrize("choices", [Outcome, MailState], ids=lambda choices: choices.__name__)
def test_each_state_and_outcome_is_in_the_reference(choices):
    assert [value for value in choices.values if not re.search(rf"^\| `{value}` \|", REFERENCE, re.M)] == []


@pytest.mark.parametrize(
    "choices", [LineState, AdviceState, AttemptOutcome, HeldFor], ids=lambda choices: choices.__name__
)
def test_each_state_of_a_row_is_in_the_reference(choices):
    assert [value for value in choices.values if f"`{value}`" not in REFERENCE] == []


def our_models(*labels: str) -> list[type[models.Model]]:
    """Return the models of these apps, without those that other tests declare for themselves."""
    found = [model for config in OURS if config.label in labels for model in config.get_models()]
    return [model for model in found if model.__module__.partition(".")[0] in labels]


@pytest.mark.parametrize("model", our_models("kwit", "notify", "receipts"), ids=lambda model: model._meta.db_table)
def test_each_table_is_in_the_reference_with_each_column_constraint_and_index(model):
    text = section(model._meta.db_table)
    names = [field.column for field in model._meta.local_fields]
    names += [thing.name for thing in (*model._meta.constraints, *model._meta.indexes)]

    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize("model", our_models("portal"), ids=lambda model: model._meta.db_table)
def test_each_table_of_the_portal_is_in_the_reference_with_each_column(model):
    (row,) = re.findall(rf"^\| `{model._meta.db_table}` \|.*$", REFERENCE, re.M)

    assert [field.column for field in model._meta.local_fields if f"`{field.column}`" not in row] == []


def test_the_checks_in_the_code_are_those_in_the_reference():
    pattern = rf"\b(?:{'|'.join(config.label for config in OURS)})\.[EWI]\d{{3}}\b"
    code = "\n".join(path.read_text() for config in OURS for path in Path(config.path).rglob("*.py"))

    assert set(re.findall(pattern, code)) == set(re.findall(pattern, REFERENCE))


def environment_names() -> set[str]:
    """Return the names that config/settings.py asks ``env`` for."""
    names: set[str] = set()

    def visit(node: ast.AST, known: dict[str, Any]) -> None:
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            for value in ast.literal_eval(node.iter):
                for child in node.body:
                    visit(child, {**known, node.target.id: value})
            return
        if isinstance(node, ast.Call) and re.fullmatch(
            r"env\.(str|bool|int|float|list|email_url|duration|moment|database)", ast.unparse(node.func)
        ):
            names.add(eval(compile(ast.Expression(node.args[0]), "settings", "eval"), {}, known))
        for child in ast.iter_child_nodes(node):
            visit(child, known)

    visit(ast.parse((ROOT / "config/settings.py").read_text()), {})
    return names


def test_env_example_lists_exactly_the_variables_that_the_settings_read():
    listed = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.M)

    assert sorted(listed) == sorted(environment_names())


def test_each_variable_is_in_the_reference():
    assert [name for name in sorted(environment_names()) if f"`{name}`" not in REFERENCE] == []


def test_the_settings_are_found_by_the_parser_above():
    """The positive control: also the names that are put together in a loop."""
    assert {"DEBUG", "NOTIFY_BREAKER", "NOTIFY_DATABASE_URL", "EMAIL_URL"} <= environment_names()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_internal_links_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_each_page_can_be_reached_from_the_readme():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        todo += [
            (page.parent / target.partition("#")[0]).resolve()
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
        ]

    assert [name_of(page) for page in PAGES if page not in reached] == []


def called_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each ``manage.py …`` of the documentation and the deployment files as its place and its words."""
    files = [*PAGES, *(path for path in (ROOT / "deploy").rglob("*") if path.is_file()), ROOT / "Makefile"]
    for path in files:
        for line in path.read_text().splitlines():
            for words in re.findall(r"manage\.py[\" ,]+([a-z_]+[^`|;>'&]*)", line):
                yield f"{name_of(path)}: {line.strip()}", words.replace('", "', " ").strip('"] .').split()


def test_each_command_line_in_the_documents_has_a_command_and_options_that_exist():
    seen = 0
    for place, (command, *words) in called_commands():
        assert command in get_commands(), place
        known = {name for action in parser_of(command)._actions for name in action.option_strings}
        assert {word for word in words if word.startswith("--")} <= known, place
        seen += 1

    assert seen > 20


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_blocks_are_valid_python(page):
    for block in blocks(page, "python"):
        ast.parse(block)


def test_each_import_in_the_documents_can_be_made():
    seen = 0
    for page in PAGES:
        for block in blocks(page, "python"):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in (
                    "kwit",
                    "notify",
                    "receipts",
                ):
                    module = importlib.import_module(str(node.module))
                    assert [one.name for one in node.names if not hasattr(module, one.name)] == [], name_of(page)
                    seen += 1

    assert seen > 10


SQL = [
    pytest.param(statement, id=f"{name_of(page)}-{number}")
    for page in PAGES
    for number, statement in enumerate(blocks(page, "sql"))
]


@pytest.mark.django_db
@pytest.mark.parametrize("statement", SQL)
def test_each_sql_statement_runs_as_it_is(statement):
    if connection.vendor == "microsoft":  # as docs/operations.md says
        statement = re.sub(r"\bSELECT ((?:(?!SELECT).)*?)\s+LIMIT (\d+)", r"SELECT TOP \2 \1", statement, flags=re.S)
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.django_db
def test_the_statement_that_marks_an_event_by_hand_leaves_a_whole_row():
    (statement,) = [param.values[0] for param in SQL if param.values[0].startswith("INSERT")]

    with connection.cursor() as cursor:
        cursor.execute(statement)

    control = Control.objects.get(kind="comment", key=42, key2=4711)
    assert control.created_at is not None
    assert (control.language, control.recipients) == ("", "")


HOST_MODELS = """
from django.db import models

class Invoice(models.Model):
    number = models.CharField(max_length=20)
    email = models.CharField(max_length=254)
    is_paid = models.BooleanField(default=False)
    due_at = models.DateTimeField(db_index=True)
"""
HOST_SETTINGS = """
SECRET_KEY = "x"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "host.sqlite3"}}
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
INSTALLED_APPS = ["shop"]
"""
HOST_STORY = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from datetime import timedelta
from django.core.management import call_command
from django.utils import timezone
from notify.models import MailQueue
from shop.models import Invoice

call_command("check", fail_level="WARNING")
call_command("migrate", run_syncdb=True, verbosity=0)
due = timezone.now() - timedelta(hours=1)
old = Invoice.objects.create(number="I-0", email="a@example.org", due_at=due)
call_command("notify_pass", "--baseline")
late = Invoice.objects.create(number="I-1", email="b@example.org", due_at=due)
Invoice.objects.create(number="I-2", email="c@example.org", due_at=due, is_paid=True)
call_command("notify_pass")
call_command("notify_pass")
mails = [(mail.control.kind, mail.control.key, mail.subject, mail.recipients) for mail in MailQueue.objects.all()]
assert mails == [("overdue", late.pk, "Invoice I-1 is overdue", ["b@example.org"])], mails
"""


def test_the_readme_s_own_project_works_as_it_stands_there(tmp_path):
    page = ROOT / "README.md"
    settings, notifications, *_ = blocks(page, "python")
    subject, body = blocks(page, "django")
    templates = tmp_path / "shop/templates/notify/mail"
    templates.mkdir(parents=True)
    (templates / "overdue.subject.txt").write_text(subject)
    (templates / "overdue.body.txt").write_text(body)
    (tmp_path / "settings.py").write_text(HOST_SETTINGS + settings)
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/models.py").write_text(HOST_MODELS)
    (tmp_path / "shop/notifications.py").write_text(notifications)
    (tmp_path / "story.py").write_text(HOST_STORY)

    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    environment = kept | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "story.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_dependency_has_its_line():
    text = (ROOT / "docs/dependencies.md").read_text()
    declared = "\n".join(path.read_text() for path in sorted((ROOT / "requirements").glob("*.in")))
    names = set(re.findall(r"^([a-z][a-z0-9.-]*)", declared, re.M))

    assert sorted(name for name in names if not re.search(rf"^\| {re.escape(name)} \|", text, re.M)) == []
    assert sorted(set(re.findall(r"^\| ([a-z][a-z0-9.-]*) \|", text, re.M)) - names - {"package"}) == []


def test_each_decision_is_listed_and_numbered_without_a_gap():
    pages = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))

    assert [page.name[:3] for page in pages] == [f"{number:03}" for number in range(1, len(pages) + 1)]
    for page in pages:
        title = page.read_text().splitlines()[0].removeprefix(f"# {page.name[:3]}: ")
        assert f"[{title}]({page.name})" in (page.parent / "README.md").read_text()
