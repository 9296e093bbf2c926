"""Admin pages of API tokens: created and shown once, listed, revoked."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.validators import MaxValueValidator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_variables

from ..conf import TOKEN_DAYS_MAX, kwit_settings
from ..db.fields import UtcNow
from ..models import TOKEN_NAME_CHARS_MAX, Token
from ..people.tenants import tenants_of
from ..people.tokens import NameTaken, is_backed, make_token, revoke_tokens
from .actions import Confirmation, ListAction, record_action
from .base import ReadOnlyAdmin
from .components import NONE, Badge, Cell, Detail, Fact, Link, Row, Section

#: Days a new token is valid when nothing else is given.
DAYS = 90
#: To make, see and revoke one's own.
OWN_PERMISSION = "kwit.add_token"
#: To see everybody's, and with the other one to revoke them, for who sees all tenants.
ALL_PERMISSION = "kwit.delete_token"
LIVE = Badge(gettext_lazy("valid"), "✓", "good")
EXPIRED = Badge(gettext_lazy("expired"), "■", "idle")
REVOKED = Badge(gettext_lazy("revoked"), "✗", "idle")


class TokenForm(forms.Form):
    """Name and lifetime of a new token."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=TOKEN_NAME_CHARS_MAX,
        help_text=gettext_lazy("The program that uses the token."),
    )
    days = forms.IntegerField(label=gettext_lazy("Valid for days"), min_value=1, initial=DAYS)

    def clean_days(self) -> int:
        """Refuse more days than the site allows."""
        days: int = self.cleaned_data["days"]
        MaxValueValidator(kwit_settings().TOKEN_DAYS or TOKEN_DAYS_MAX)(days)
        return days


def revoke(pks: Sequence[int], *, actor: str, using: str) -> int:
    """Revoke tokens."""
    return revoke_tokens(pks, now=timezone.now())


def badge_of(token: Token) -> Badge:
    """Return the state of a token now."""
    if token.revoked_at is not None or not is_backed(token):
        return REVOKED
    ends_at = token.ends_at(days_max=kwit_settings().TOKEN_DAYS)
    return EXPIRED if ends_at is not None and ends_at <= timezone.now() else LIVE


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    """A user's tokens."""

    #: They are of their user, whatever his tenants.
    is_for_everybody = True
    intro = gettext_lazy(
        "Programs read the API with a token. It has its user's read access and cannot change anything."
    )
    empty_text = gettext_lazy("No tokens.")
    label_field = "prefix"
    head = (
        gettext_lazy("name"),
        gettext_lazy("prefix"),
        gettext_lazy("state"),
        gettext_lazy("user"),
        gettext_lazy("created"),
        gettext_lazy("last used"),
        gettext_lazy("expires"),
    )
    list_actions = (
        ListAction(
            name="revoke",
            label=gettext_lazy("Revoke"),
            explains=gettext_lazy("Programs that use these tokens lose access immediately and permanently."),
            permission=OWN_PERMISSION,
            verb=revoke,
            eligible=lambda rows: rows.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=UtcNow()), revoked_at=None),
        ),
    )

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whoever may make tokens sees his own."""
        return request.user.has_perm(OWN_PERMISSION) or request.user.has_perm(ALL_PERMISSION)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the user's own, or all to whom may revoke all: those of one tenant only do not learn of others."""
        rows = super().get_queryset(request).select_related("user")
        sees_all = request.user.has_perm(ALL_PERMISSION) and tenants_of(request.user) is None
        return rows if sees_all else rows.filter(user_id=request.user.pk)

    def get_urls(self) -> list[URLPattern]:
        """Add the page that makes a token."""
        return [path("new/", self.admin_site.admin_view(self.new_view), name=self.url_name("new")), *super().get_urls()]

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return the way to a new token."""
        return [Link(_("Create a token"), self.url("new"))] if request.user.has_perm(OWN_PERMISSION) else []

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per token."""
        return [Row(cells=self.cells(token), key=str(token.pk), name=str(token)) for token in found]

    def cells(self, token: Token) -> list[Cell]:
        """Return a token's cells."""
        return [
            Cell(text=token.name, url=self.url("change", token.pk)),
            Cell(text=token.prefix, is_code=True),
            Cell(badge=badge_of(token)),
            Cell(text=token.user.get_username()),
            Cell(at=token.created_at),
            Cell(at=token.last_used_at) if token.last_used_at else Cell(text=NONE),
            Cell(at=ends_at) if (ends_at := token.ends_at(days_max=kwit_settings().TOKEN_DAYS)) else Cell(text=NONE),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return the data of a token; its secret is not stored."""
        facts = [Fact(name=name, cell=cell) for name, cell in zip(self.head[1:], self.cells(row)[1:], strict=True)]
        facts.append(Fact(name=_("revoked"), cell=Cell(at=row.revoked_at) if row.revoked_at else Cell(text=NONE)))
        return Detail(title=row.name, badge=badge_of(row), sections=[Section(facts=facts)])

    def new_view(self, request: HttpRequest) -> HttpResponse:
        """Ask for a name, then make a token and show it this once."""
        if not request.user.has_perm(OWN_PERMISSION):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        form = TokenForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            try:
                return self.create_and_show(request, **form.cleaned_data)
            except NameTaken:
                form.add_error(
                    "name", _("You already have a token with this name. Revoke it first or choose another name.")
                )
        asked = Confirmation(
            title=_("Create a token"),
            question=_("For which program is the token?"),
            explains=_(
                "The token is shown once, on the next page. It has your read access and cannot change anything."
            ),
            button=_("Create a token"),
            form=form,
            back=self.url("changelist"),
        )
        return TemplateResponse(request, "kwit/confirm.html", self.context(request, title=asked.title, asked=asked))

    @sensitive_variables()
    def create_and_show(self, request: HttpRequest, *, name: str, days: int) -> HttpResponse:
        """Create a token and show it. Raises: NameTaken."""
        actor, subject = request.user.get_username(), self.opts.label_lower
        ends = timezone.now() + timedelta(days=days)
        with record_action(actor=actor, name="make_token", subject=subject, scope=name, asked=1) as doing:
            token, secret = make_token(request.user, name=name, expires_at=ends)  # type: ignore[arg-type]
            doing.done, doing.note = 1, f"prefix={token.prefix}"
        messages.success(request, _("Copy the token now. It cannot be shown again."))
        facts = [Fact(name=_("expires"), cell=Cell(at=ends))]
        page = Detail(title=name, sections=[Section(title=_("The token"), text=secret), Section(facts=facts)])
        return TemplateResponse(request, "kwit/detail.html", self.context(request, title=page.title, detail=page))
