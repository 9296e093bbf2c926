"""Receipts and audit rows are append-only: the database itself refuses UPDATE, DELETE and TRUNCATE."""

from django.db import migrations

from ..dialects import dialect_of


def put_guard(apps, schema_editor):
    for statement in dialect_of(schema_editor.connection).guard(schema_editor.connection):
        schema_editor.execute(statement, params=None)


def take_guard(apps, schema_editor):
    for statement in dialect_of(schema_editor.connection).unguard(schema_editor.connection):
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):
    dependencies = [("receipts", "0001_initial")]

    operations = [migrations.RunPython(put_guard, take_guard)]
