"""
Who belongs to which tenant, and who may decide it.

Nobody manages an account that may do more than his own, and nobody gives what he has not got: else whoever may reset
passwords could become whom he likes.
"""

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import AbstractUser, Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from ..admin.actions import record_action
from ..models import TENANT_CHARS_MAX, Membership
from .groups import labelled
from .tenants import tenants_of

SUBJECT = "kwit.membership"


def tenant_name(text: str) -> str:
    """Return a tenant's name as rows have it. Raises: ValidationError."""
    if not text or text != text.strip() or len(text) > TENANT_CHARS_MAX or not text.isprintable():
        raise ValidationError(
            _("A tenant has 1 to %d characters, all printable, with no blank at either end.") % TENANT_CHARS_MAX
        )
    return text


def join(user: AbstractUser, tenants: Sequence[str], *, actor: str, using: str | None = None) -> list[str]:
    """
    Make a user a member of tenants; return those to which he did not belong yet. Each leaves its row under actions.

    Transaction: its own.
    Raises: ValidationError, before anything is written.
    """
    names = [tenant_name(text) for text in dict.fromkeys(tenants)]
    with transaction.atomic(using=using):
        rows = Membership.objects.using(using)
        return [
            name
            for name in names
            if rows.get_or_create(user_id=user.pk, tenant=name)[1] and noted("join", user, name, actor, using)
        ]


def leave(user: AbstractUser, tenants: Sequence[str], *, actor: str, using: str | None = None) -> list[str]:
    """End a user's memberships; return those that there were. Transaction: its own."""
    with transaction.atomic(using=using):
        rows = Membership.objects.using(using)
        names = list(dict.fromkeys(tenants))
        return [
            name
            for name in names
            if rows.filter(user_id=user.pk, tenant=name).delete()[0] and noted("leave", user, name, actor, using)
        ]


def noted(name: str, user: AbstractUser, tenant: str, actor: str, using: str | None) -> bool:
    """Record that somebody joined or left a tenant, beside the membership."""
    given = {"actor": actor, "name": name, "subject": SUBJECT, "scope": user.get_username(), "tenant": tenant}
    with record_action(**given, asked=1, using=using) as doing:
        doing.done = 1
    return True


def rights_of(owner: AbstractUser | Group) -> set[str]:
    """Return the permissions of a user or a group as they stand in the database: also of a user who is shut out."""
    if isinstance(owner, Group):
        return set(labelled().filter(group=owner).values_list("label", flat=True))
    own = labelled().filter(user=owner).values_list("label", flat=True)
    return {*own, *labelled().filter(group__user=owner).values_list("label", flat=True)}


def may_manage(editor: Any, other: AbstractUser | Group) -> bool:
    """Whether an account or a group has nothing that the editor has not got."""
    if editor.is_superuser and editor.is_active:
        return True
    if not isinstance(other, Group):
        tenants = tenants_of(editor)
        theirs = set(Membership.objects.filter(user_id=other.pk).values_list("tenant", flat=True))
        if other.is_superuser or (tenants is not None and not theirs <= tenants):
            return False
    own: set[str] = editor.get_all_permissions()
    return rights_of(other) <= own
