"""Removes Kwit from a site: tables, permissions, content types, ready-made groups and files beside the database."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connections, router
from django.db.migrations.executor import MigrationExecutor

from .db.migrations import allow_going_back
from .people.groups import ALL_TENANTS_GROUP, declared, labelled

#: In the order in which they are removed.
APPS = ("receipts", "notify", "kwit")


class UninstallRefused(Exception):
    """Why nothing was removed."""


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Everything that an uninstallation removes."""

    #: By alias of the database.
    tables: Mapping[str, list[str]]
    permissions: list[str]
    content_types: list[str]
    groups: list[str]
    #: Ready-made groups that stay, because they have permissions of other apps.
    kept_groups: list[str]
    files: list[str]
    #: Whether there are receipts.
    has_receipts: bool


def take_inventory(alias: str | None = None) -> Inventory:
    """Return what there is to remove from one database, or from all; reads only."""
    labels = [name for name in APPS if apps.is_installed(name)]
    tables = {one: tables_of(one, labels) for one in ([alias] if alias else connections)}
    types = ContentType.objects.filter(app_label__in=labels).order_by("app_label", "model")
    permissions = Permission.objects.filter(content_type__app_label__in=labels)
    names = (
        Group.objects.filter(name__in=[*declared(), ALL_TENANTS_GROUP]).order_by("name").values_list("name", flat=True)
    )
    foreign = {name for name in names if has_foreign_permissions(name, labels)}
    return Inventory(
        tables={one: found for one, found in tables.items() if found},
        permissions=sorted(labelled().filter(pk__in=permissions).values_list("label", flat=True)),
        content_types=[f"{one.app_label}.{one.model}" for one in types],
        groups=[name for name in names if name not in foreign],
        kept_groups=sorted(foreign),
        files=[str(path) for path in leftover_files(labels, tables)],
        has_receipts=has_receipts(tables),
    )


def tables_of(alias: str, labels: list[str]) -> list[str]:
    """Return the tables of these apps that are in a database."""
    there = set(connections[alias].introspection.table_names())
    models = [
        model
        for label in labels
        if router.allow_migrate(alias, label)
        for model in apps.get_app_config(label).get_models(include_auto_created=True)
    ]
    return sorted(model._meta.db_table for model in models if model._meta.db_table in there)


def has_foreign_permissions(group: str, labels: list[str]) -> bool:
    """Whether a ready-made group has permissions of other apps that the site did not declare for it."""
    given = set(labelled().filter(group__name=group).values_list("label", flat=True))
    return any(label.partition(".")[0] not in labels for label in given - set(declared().get(group, ())))


def leftover_files(labels: list[str], aliases: Iterable[str]) -> list[Path]:
    """Return the files that the apps have made beside their databases."""
    found: set[Path] = set()
    for label in labels:
        files_of = getattr(apps.get_app_config(label), "leftover_files", None)
        for alias in aliases if files_of else ():
            found |= {path for path in files_of(alias) if path.exists()}  # type: ignore[misc]
    return sorted(found)


def has_receipts(tables: Mapping[str, list[str]]) -> bool:
    """Whether any database has a receipt."""
    if not apps.is_installed("receipts"):
        return False
    model = apps.get_model("receipts", "Change")
    return any(
        model._default_manager.using(alias).exists() for alias, found in tables.items() if model._meta.db_table in found
    )


def uninstall(alias: str | None = None, *, with_receipts: bool = False) -> Inventory:
    """
    Remove everything of the inventory and return what it was. Done twice, it does nothing the second time.

    Transaction: one per migration; a second run removes what an interrupted one has left.
    Raises: UninstallRefused, before anything is removed.
    """
    found = take_inventory(alias)
    if found.has_receipts and not with_receipts:
        raise UninstallRefused("there are receipts; --with-receipts removes them, too, and nothing brings them back")
    labels = [name for name in APPS if apps.is_installed(name)]
    for one in found.tables:
        refuse_dependents(one, labels)
    for one in found.tables:
        for label in labels:
            if router.allow_migrate(one, label):
                with allow_going_back():
                    call_command("migrate", label, "zero", database=one, interactive=False, verbosity=0)
    Group.objects.filter(name__in=found.groups).delete()
    ContentType.objects.filter(app_label__in=labels).delete()
    ContentType.objects.clear_cache()
    for path in found.files:
        Path(path).unlink(missing_ok=True)
    return found


def refuse_dependents(alias: str, labels: list[str]) -> None:
    """Refuse when migrations of other apps depend on ours: Django would undo those, too. Raises: UninstallRefused."""
    executor = MigrationExecutor(connections[alias])
    known = [label for label in labels if label in executor.loader.migrated_apps]
    plan = executor.migration_plan([(label, None) for label in known])
    if others := sorted({step.app_label for step, _backwards in plan} - set(labels)):
        raise UninstallRefused(f"migrations of {', '.join(others)} depend on Kwit's tables; remove those first")
