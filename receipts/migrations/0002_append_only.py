"""Receipts are append-only: the database itself refuses UPDATE, DELETE and TRUNCATE. Back: refused while there are rows."""

from django.db import migrations

from kwit.db.migrations import refuse_while_rows

from ..dialects import dialect_of


def put_guard(apps, schema_editor):
    for statement in dialect_of(schema_editor.connection).guard(schema_editor.connection):
        schema_editor.execute(statement, params=None)


refuse = refuse_while_rows("receipts", "let receipts be changed and deleted")


def take_guard(apps, schema_editor):
    refuse(apps, schema_editor)
    for statement in dialect_of(schema_editor.connection).unguard(schema_editor.connection):
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):
    dependencies = [("receipts", "0001_initial")]

    operations = [migrations.RunPython(put_guard, take_guard)]
