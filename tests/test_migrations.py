"""Migrations forward and back on each database, and what is refused while there are rows."""

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection

from kwit.db.migrations import MEANT
from notify.models import Control, MailQueue
from notify.passes.runner import run_pass
from receipts.dialects import dialect_of
from receipts.models import Audit, Change
from tests.babelfish import stand_in_cannot
from tests.factories import NOW, make_comment, make_contact, make_line
from tests.receipts.plain import cancel, target

pytestmark = pytest.mark.django_db(transaction=True)
ENGINES = ("notify", "receipts")


def tables() -> set[str]:
    with connection.cursor() as cursor:
        return set(connection.introspection.table_names(cursor))


def tables_of(app: str) -> set[str]:
    return {model._meta.db_table for model in apps.get_app_config(app).get_models()}


@pytest.fixture(autouse=True)
def _migrated_afterwards():
    """Whatever a test leaves, the next one finds every table."""
    yield
    call_command("migrate", verbosity=0)


def fill(app: str) -> None:
    """Make rows as the site does."""
    if app == "receipts":
        return cancel(target(make_line()))
    make_comment(recipient=make_contact(), created_at=NOW)
    run_pass(now=NOW)
    return None


@stand_in_cannot("it does not find the constraint of a default by its name")
@pytest.mark.parametrize("app", ENGINES)
def test_migrations_go_back_to_nothing_and_forward_again(app):
    call_command("migrate", app, "zero", verbosity=0)
    assert not tables() & tables_of(app)

    call_command("migrate", app, verbosity=0)

    assert tables_of(app) <= tables()
    assert dialect_of(connection).guard_flaws(connection) == []
    fill(app)


@pytest.mark.parametrize(("app", "model"), [("notify", Control), ("receipts", Change)])
@pytest.mark.parametrize("where", ["zero", "0001"])
def test_going_back_is_refused_while_there_are_rows(app, model, where):
    fill(app)
    count = model.objects.count()

    with pytest.raises(CommandError, match=rf"{model._meta.db_table}.* have rows: going back would .*{MEANT}=1"):
        call_command("migrate", app, where, verbosity=0)

    assert model.objects.count() == count > 0
    assert dialect_of(connection).guard_flaws(connection) == []


@stand_in_cannot("it does not find the constraint of a default by its name")
@pytest.mark.parametrize("app", ENGINES)
def test_going_back_is_possible_when_it_is_meant(app, monkeypatch):
    fill(app)
    monkeypatch.setenv(MEANT, "1")

    call_command("migrate", app, "zero", verbosity=0)

    assert not tables() & tables_of(app)


def test_forward_works_while_a_mail_is_on_the_wire_and_receipts_are_there(monkeypatch):
    """From any lawful state: the last migration of each app may be taken back and applied over rows."""
    fill("receipts")
    fill("notify")
    MailQueue.objects.update(state="sending", flight=1, worker="w", lease_until=NOW)
    monkeypatch.setenv(MEANT, "1")
    for app in ENGINES:
        call_command("migrate", app, "0001", verbosity=0)

    for app in ENGINES:
        call_command("migrate", app, verbosity=0)

    assert MailQueue.objects.filter(state="sending").exists()
    assert Audit.objects.exists()
    assert dialect_of(connection).guard_flaws(connection) == []


def test_the_models_have_no_changes_that_no_migration_makes():
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
