"""
The ready-made groups: one table that says which group may do what.

None of them sees all tenants; the group ``all-tenants`` is made on request only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django.db.models import F, QuerySet, Value
from django.db.models.functions import Concat

from ..conf import kwit_settings
from .tenants import ALL_TENANTS

VIEW = (
    *("notify.view_control", "notify.view_mailqueue", "notify.view_taskqueue"),
    *("notify.view_runlog", "notify.view_channel", "notify.view_delivery", "notify.view_suppression"),
    "notify.view_wording",
    *("receipts.view_change", "receipts.view_audit", "receipts.view_storedplan", "receipts.view_reconciliation"),
)
#: Group -> permissions. Drafting, approving and applying a plan are separate roles.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "viewer": VIEW,
    "operator": (
        *VIEW,
        *("notify.run_pass", "notify.retry_mail", "notify.finish_task", "notify.resume_channel"),
        *("notify.add_suppression", "notify.delete_suppression"),
        *("receipts.add_storedplan", "receipts.apply_plan", "receipts.reconcile", "receipts.export"),
    ),
    "approver": (*VIEW, "receipts.approve_plan"),
    "auditor": (*VIEW, "kwit.view_action", "receipts.reconcile", "receipts.export"),
}
ALL_TENANTS_GROUP = "all-tenants"


@dataclass(frozen=True, kw_only=True)
class Made:
    """What became of one group."""

    group: str
    is_new: bool
    added: tuple[str, ...]
    removed: tuple[str, ...]


def declared(*, all_tenants: bool = False) -> dict[str, tuple[str, ...]]:
    """
    Return each group's permissions: the table, and what the site adds to it.

    ``KWIT["GROUPS"]`` adds labels to groups, or groups; what it gives to ``viewer`` the others get, too.
    """
    extra: Mapping[str, Iterable[str]] = kwit_settings().GROUPS
    seen = tuple(extra.get("viewer", ()))
    table = {name: (*labels, *seen) for name, labels in GROUPS.items()}
    for name, labels in extra.items():
        table[name] = (*table.get(name, ()), *labels)
    if all_tenants:
        table[ALL_TENANTS_GROUP] = (ALL_TENANTS,)
    return {name: tuple(dict.fromkeys(labels)) for name, labels in table.items()}


def labelled(using: str | None = None) -> QuerySet[Any]:
    """Return permissions with ``label``, as ``has_perm`` wants it."""
    label = Concat(F("content_type__app_label"), Value("."), F("codename"))
    return Permission.objects.using(using).annotate(label=label)


def make_groups(*, all_tenants: bool = False, using: str | None = None) -> list[Made]:
    """
    Make the groups, or bring them up to the table; return what was done. Done twice, it does nothing the second time.

    What a group has of the apps that the table speaks of, and the table does not give it, is taken away; permissions of
    other apps stay, because a site may have had a group of this name before.

    Transaction: its own.
    Raises: LookupError, naming permissions that are not in the database.
    """
    table = declared(all_tenants=all_tenants)
    labels = {label for found in table.values() for label in found}
    known = {label: pk for label, pk in labelled(using).values_list("label", "pk") if label in labels}
    if missing := sorted(installed(labels) - known.keys()):
        raise LookupError(f"no such permissions, run migrate first: {', '.join(missing)}")
    ours = {label.partition(".")[0] for label in labels}
    with transaction.atomic(using=using):
        return [
            make_group(name, {known[x]: x for x in found if x in known}, ours, using) for name, found in table.items()
        ]


def installed(labels: Iterable[str]) -> set[str]:
    """Return the labels of apps that this site has; it may have one engine only."""
    have = {config.label for config in apps.get_app_configs()}
    return {label for label in labels if label.partition(".")[0] in have}


def make_group(name: str, wanted: Mapping[int, str], ours: set[str], using: str | None) -> Made:
    """Make one group or bring it up to date. Transaction: the caller's."""
    group, is_new = Group.objects.using(using).get_or_create(name=name)
    has = dict(labelled(using).filter(group=group).values_list("pk", "label"))
    added = sorted(wanted.keys() - has.keys())
    removed = sorted(pk for pk in has.keys() - wanted.keys() if has[pk].partition(".")[0] in ours)
    group.permissions.add(*added)
    group.permissions.remove(*removed)
    return Made(
        group=name,
        is_new=is_new,
        added=tuple(sorted(wanted[pk] for pk in added)),
        removed=tuple(sorted(has[pk] for pk in removed)),
    )
