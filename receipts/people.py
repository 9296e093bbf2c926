"""
Who wrote, approved or applied a plan: a name for people to read, and beside it the key of the user.

Names change hands: whoever renames himself is still the author of what he wrote. Names that differ in case or width
only are one person's as well, lest ``Ann`` approve what ``ann`` wrote.
"""

import unicodedata
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model

from .errors import NotApproved

APPROVE_PERMISSION = "receipts.approve_plan"
#: Characters; the column's width.
KEY_CHARS_MAX = 64


@dataclass(frozen=True)
class Person:
    """A user by name and key; the key is empty for somebody who is none of the site's users."""

    name: str
    key: str = ""

    def is_same_as(self, name: str, key: str) -> bool:
        """Whether this may be the person of that name and key."""
        return (self.key != "" and self.key == key) or folded(self.name) == folded(name)


def folded(name: str) -> str:
    """Return a name without what people do not tell apart."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def person_of(user: Any) -> Person:
    """Return a signed-in user as a person."""
    return Person(user.get_username(), str(user.pk))


def find_user(name: str) -> Any:
    """Return the user of this very name, None when the site has none."""
    if not apps.is_installed("django.contrib.auth"):
        return None
    model = get_user_model()
    found = model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    # A database may compare names without their case.
    return found if found is not None and found.get_username() == name else None


def find_person(name: str | Person) -> Person:
    """Return a person by name, with the key of the user who has it."""
    if isinstance(name, Person):
        return name
    user = find_user(name)
    return Person(name) if user is None else person_of(user)


def find_approver(name: str) -> Person:
    """
    Return the active user of this name who may approve plans.

    Raises: NotApproved, which says the same of a user who may not and of one that there is not.
    """
    user = find_user(name)
    if user is None or not user.is_active or not user.has_perm(APPROVE_PERMISSION):
        raise NotApproved(f"no active user named {name!r} may approve plans")
    return person_of(user)
