"""
Memberships of tenants, and who may manage which account.

Nobody manages an account with more permissions than his own or grants permissions that he lacks: otherwise the right to
reset passwords would be the right to become anybody.
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
            _("A tenant name has 1 to %d printable characters and no leading or trailing space.") % TENANT_CHARS_MAX
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
    """Delete memberships of a user; return those that existed. Transaction: its own."""
    with transaction.atomic(using=using):
        rows = Membership.objects.using(using)
        names = list(dict.fromkeys(tenants))
        return [
            name
            for name in names
            if rows.filter(user_id=user.pk, tenant=name).delete()[0] and noted("leave", user, name, actor, using)
        ]


def noted(name: str, user: AbstractUser, tenant: str, actor: str, using: str | None) -> bool:
    """Log that a user joined or left a tenant."""
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
