"""
Row visibility by tenant.

A user is a member of tenants (``kwit_membership``) and sees only their rows; the permission ``kwit.see_all_tenants``
shows all. Without either, no row that belongs to a tenant is visible.

Where no tenant is in use there is nothing to separate: every user sees all rows. The first membership or the first row
with a tenant ends that.
"""

from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Model, QuerySet

from ..models import Membership

#: The permission of those who run the whole installation; superusers have it.
ALL_TENANTS = "kwit.see_all_tenants"

Rows = TypeVar("Rows", bound="QuerySet[Any]")
User = AbstractBaseUser | AnonymousUser


def tenants_of(user: User) -> frozenset[str] | None:
    """Return the tenants a user belongs to, None for one who sees all rows; queried once per user object."""
    if user.has_perm(ALL_TENANTS):  # type: ignore[union-attr]
        return None
    if user.pk is None or not user.is_active:
        return frozenset()
    if not hasattr(user, "_kwit_tenants"):
        found = frozenset(Membership.objects.filter(user_id=user.pk).values_list("tenant", flat=True))
        tenants = found if found or has_tenants() else None
        setattr(user, "_kwit_tenants", tenants)  # noqa: B010 - the user model is the host project's
    known: frozenset[str] | None = user._kwit_tenants  # type: ignore[attr-defined]
    return known


def sees_all_for_lack_of_tenants(user: User) -> bool:
    """Return whether a user sees all rows only because no tenant is in use."""
    return tenants_of(user) is None and not user.has_perm(ALL_TENANTS)  # type: ignore[union-attr]


def has_tenants() -> bool:
    """
    Return whether any tenant is in use: a membership, or a row with a tenant.

    Asked are the models whose admin class has ``names_tenants``, each by one seek in an index that begins with the
    tenant.
    """
    if Membership.objects.exists():
        return True
    sources: list[Any] = [one for one in admin.site._registry.values() if getattr(one, "names_tenants", False)]
    return any(one.model._default_manager.filter(**{f"{one.tenant_lookup}__gt": ""}).exists() for one in sources)


def within(rows: Rows, user: User, lookup: str = "tenant") -> Rows:
    """Return those of the rows that a user may see; ``lookup`` leads to their tenant."""
    tenants = tenants_of(user)
    return rows if tenants is None else rows.filter(**{f"{lookup}__in": sorted(tenants)})


def sees(user: User, tenant: str) -> bool:
    """Return whether a user may see the rows of a tenant."""
    tenants = tenants_of(user)
    return tenants is None or tenant in tenants


def of_model(user: User, model: type[Model], lookup: str = "tenant") -> QuerySet[Any]:
    """Return a model's rows that a user may see."""
    return within(model._default_manager.all(), user, lookup)
