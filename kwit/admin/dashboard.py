"""
The panels of the dashboard; each app registers its own.

``{% kwit_panels %}`` renders those that the user may see.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import DatabaseError
from django.http import HttpRequest
from django.utils.translation import gettext as _

from ..people.tenants import tenants_of
from .components import Badge, Finding, Text
from .time_ranges import TimeRange


@dataclass(frozen=True, kw_only=True)
class PanelContent:
    """The template context of a panel, and the problems it found."""

    context: Mapping[str, Any]
    findings: Sequence[Finding] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One part of the dashboard; ``build`` makes a fixed number of bounded queries."""

    name: str
    title: Text
    template: str
    #: The permission to see the panel.
    permission: str
    build: Callable[[HttpRequest, TimeRange], PanelContent]
    #: Whether its numbers are those of the user's tenants; other panels are for users who see all tenants.
    is_for_tenants: bool = False


_registered: dict[str, Panel] = {}


def register(panel: Panel) -> None:
    """Add a panel; one of the same name is replaced."""
    _registered[panel.name] = panel


def panels_for(user: AbstractBaseUser | AnonymousUser) -> list[Panel]:
    """Return the panels a user may see, in the order of their registration."""
    sees_all = tenants_of(user) is None
    return [
        panel
        for panel in _registered.values()
        if user.has_perm(panel.permission) and (sees_all or panel.is_for_tenants)  # type: ignore[union-attr]
    ]


def build(panel: Panel, request: HttpRequest, window: TimeRange) -> PanelContent:
    """Build a panel; a database that does not answer is a finding, and the other panels are still shown."""
    try:
        return panel.build(request, window)
    except DatabaseError as error:
        what_to_do = _("Check the database server and its address in the settings.")
        text = _("The database of “%(title)s” does not answer: %(error)s") % {"title": panel.title, "error": error}
        badge = Badge(_("error"), "✗", "bad")
        return PanelContent(context={}, findings=[Finding(badge=badge, text=text, what_to_do=what_to_do)])
