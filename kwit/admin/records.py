"""The log of actions, API tokens, users and groups in the admin."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..api.resources import Resource, model_columns, register
from ..models import Action, ActionOutcome
from ..people.users import GuardedGroupAdmin, MemberUserAdmin
from . import tokens  # noqa: F401 - registers
from .base import ReadOnlyAdmin
from .components import NONE, Badge, Cell, Detail, Fact, Row, Section
from .filters import Filter, FilterValues, equals

BADGES = {
    ActionOutcome.OPEN: Badge(_("open"), "…", "busy"),
    ActionOutcome.DONE: Badge(_("done"), "✓", "good"),
    ActionOutcome.FAILED: Badge(_("failed"), "✗", "bad"),
}


@admin.register(Action)
class ActionAdmin(ReadOnlyAdmin):
    """The log of actions; those on rows of no tenant or of several are for users who see all tenants."""

    tenant_lookup = "tenant"
    names_tenants = True
    head = (
        *(_("time"), _("user"), _("action"), _("object type")),
        *(_("rows"), _("outcome"), _("requested"), _("done")),
    )
    numbers = frozenset({6, 7})
    filters = (Filter("actor", _("User"), equals("actor")),)

    def order_for(self, asked: FilterValues) -> Sequence[str]:
        """Return newest first; the index by actor has the same order."""
        return ("-pk",)

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per action."""
        return [Row(cells=self.cells(action), key=str(action.pk), name=str(action)) for action in found]

    def cells(self, action: Action) -> list[Cell]:
        """Return an action's cells."""
        return [
            Cell(at=action.at, url=self.url("change", action.pk)),
            Cell(text=action.actor),
            Cell(text=action.name, is_code=True),
            Cell(text=action.subject, is_code=True),
            Cell(text=action.scope if len(action.scope) <= 60 else action.scope[:59] + "…"),
            Cell(badge=BADGES[ActionOutcome(action.outcome)]),
            Cell(text=action.asked, is_number=True),
            Cell(text=NONE if action.done is None else action.done, is_number=True),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return an action in full."""
        cells = self.cells(row)
        facts = [Fact(name=name, cell=cell) for name, cell in zip(self.head, cells, strict=True)]
        facts[4] = Fact(name=_("rows"), cell=Cell(text=row.scope))
        facts.append(Fact(name=_("note"), cell=Cell(text=row.note)))
        return Detail(title=str(row), badge=BADGES[ActionOutcome(row.outcome)], sections=[Section(facts=facts)])


class Actions(Resource):
    """The log of actions."""

    name = "actions"
    about = "The log of actions, newest first."
    model = Action
    columns = model_columns(
        Action, "id", "at", "actor", "name", "subject", "scope", "asked", "done", "outcome", "note", "tenant"
    )


register(Actions())


# Django's own classes are registered by now, so that they can be distinguished from the site's.
for model, theirs, ours in ((get_user_model(), UserAdmin, MemberUserAdmin), (Group, GroupAdmin, GuardedGroupAdmin)):
    if type(admin.site._registry.get(model)) is theirs:
        admin.site.unregister(model)
        admin.site.register(model, ours)
