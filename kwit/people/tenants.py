"""
Row visibility by tenant.

A user is a member of tenants (``kwit_membership``) and sees only their rows; the permission ``kwit.see_all_tenants``
shows all. Without either, no row that belongs to a tenant is visible.
"""

from typing import Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Model, QuerySet

from ..models import Membership

#: The permission of those who run the whole installation; superusers have it.
ALL_TENANTS = "kwit.see_all_tenants"

Rows = TypeVar("Rows", bound="QuerySet[Any]")
User = AbstractBaseUser | AnonymousUser


def tenants_of(user: User) -> frozenset[str] | None:
    """Return the tenants a user belongs to, None for one who sees all; one query per user object."""
    if user.has_perm(ALL_TENANTS):  # type: ignore[union-attr]
        return None
    if user.pk is None or not user.is_active:
        return frozenset()
    found: frozenset[str] | None = getattr(user, "_kwit_tenants", None)
    if found is None:
        found = frozenset(Membership.objects.filter(user_id=user.pk).values_list("tenant", flat=True))
        setattr(user, "_kwit_tenants", found)  # noqa: B010 - the user model is the host project's
    return found


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
