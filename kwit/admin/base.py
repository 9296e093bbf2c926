"""
Read-only ModelAdmin base: keyset-paginated lists, filters on indexed columns, detail pages, and confirmed actions.

Nothing is added, changed or deleted except by actions, each with a permission of its own. Members of a tenant see its
rows only: every page begins with ``get_queryset``.
"""

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.db import router, transaction
from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet, Value
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..people.tenants import tenants_of, within
from .actions import (
    ACTION_ROWS_MAX,
    MATCHING,
    SELECTED,
    Confirmation,
    ListAction,
    Selection,
    answer_non_post,
    run_action,
)
from .components import Detail, Link, Row, Table, Text
from .filters import Filter, FilterValues, filter_controls, parse_filters, parse_integer
from .keyset import AFTER, BEFORE, Page, parted_page_of

#: Rows that a confirmation page lists.
NAMED_ROWS = 10
#: Up to this many tenants of a user are queried one by one; with more, all rows are queried at once.
ARMS_MAX = 20


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Lists and shows rows; a subclass defines columns and actions."""

    #: The lookup from a row to its tenant: ``tenant``, ``change__tenant``. Without it only users who see all tenants
    #: see the rows.
    tenant_lookup: ClassVar[str] = ""
    #: For rows that belong to no tenant and contain nothing of one: every user with the permission sees all of them.
    is_for_everybody: ClassVar[bool] = False
    #: Whether a row of this model can be the first one with a tenant, which is why it is asked whether tenants are in
    #: use. Not for rows that get their tenant from others.
    names_tenants: ClassVar[bool] = False
    page_rows = 50
    filters: ClassVar[Sequence[Filter]] = ()
    #: Tells ``StrictPolicyMiddleware`` that it protects these pages.
    is_kwit_page = True
    list_actions: ClassVar[Sequence[ListAction]] = ()
    head: ClassVar[Sequence[Text]] = ()
    #: Indexes in ``head`` of numeric columns.
    numbers: ClassVar[frozenset[int]] = frozenset()
    intro: ClassVar[Text] = ""
    empty_text: ClassVar[Text] = ""
    #: The field by which the log of actions names rows; a key alone says nothing about a row that is gone.
    label_field = "pk"
    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows come from the engine."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are not edited."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are not deleted."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Require the view permission, and for rows without a tenant the right to see all tenants."""
        is_open = bool(self.tenant_lookup) or self.is_for_everybody or tenants_of(request.user) is None
        return is_open and super().has_view_permission(request, obj)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that the user may see; pages and actions know no others."""
        rows = super().get_queryset(request)
        if self.tenant_lookup:
            return within(rows, request.user, self.tenant_lookup)
        return rows if self.is_for_everybody or tenants_of(request.user) is None else rows.none()

    # For subclasses.

    def order_for(self, asked: FilterValues) -> Sequence[str]:
        """Return the order of the list, which an index must serve under these filters."""
        return ("-pk",)

    def order_of(self, request: HttpRequest, asked: FilterValues) -> Sequence[str]:
        """Return the order for this user: members of tenants may need another index."""
        return self.order_for(asked)

    def list_queryset(self, request: HttpRequest, asked: FilterValues) -> QuerySet[Any]:
        """Return the rows of the list before its filters."""
        return self.get_queryset(request)

    def key_of(self, pk: Any) -> str:
        """Return a key as it stands in a URL; ``key_from`` reads it back."""
        return quote(pk)

    def key_from(self, text: str) -> str:
        """Return the key from a URL."""
        return unquote(text)

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return the table rows of a page; a fixed number of queries."""
        raise NotImplementedError

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a row's own page; a fixed number of queries."""
        raise NotImplementedError

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return links from the list to other pages."""
        return ()

    # The pages.

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the actions, which commit by themselves: no request-wide transaction around them."""
        action = transaction.non_atomic_requests(self.admin_site.admin_view(self.action_view))
        return [path("action/<slug:name>/", action, name=self.url_name("action")), *super().get_urls()]

    def url_name(self, page: str) -> str:
        """Return the name of one of this class's URLs."""
        return f"{self.opts.app_label}_{self.opts.model_name}_{page}"

    def url(self, page: str, *args: Any, **query: Any) -> str:
        """Return one of this class's URLs."""
        return self.url_of(self.model, page, *args, **query)

    def url_of(self, model: type[Model], page: str, *args: Any, **query: Any) -> str:
        """Return a URL of another model's admin on the same site."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
        address = reverse(name, args=args, current_app=self.admin_site.name)
        return f"{address}?{urlencode(query)}" if query else address

    def url_if_allowed(self, request: HttpRequest, model: type[Model], page: str, *args: Any, **query: Any) -> str:
        """Return a URL of another model's admin, empty when this user may not see it."""
        is_there = self.admin_site.is_registered(model)
        is_allowed = is_there and self.admin_site.get_model_admin(model).has_view_permission(request)
        return self.url_of(model, page, *args, **query) if is_allowed else ""

    def context(self, request: HttpRequest, **more: Any) -> dict[str, Any]:
        """Return the template context of a page."""
        return {**self.admin_site.each_context(request), "opts": self.opts, "list_url": self.url("changelist"), **more}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show one page of the list."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        asked = parse_filters(self.filters, request.GET)
        found = asked.apply(self.filters, self.list_queryset(request, asked))
        place = {name: request.GET.get(name, "") for name in (AFTER, BEFORE)}
        page = self.page(request, found, order=self.order_of(request, asked), size=self.page_rows, **place)
        allowed = self.actions_for(request)
        return TemplateResponse(
            request,
            "kwit/list.html",
            self.context(
                request,
                title=self.opts.verbose_name_plural,
                intro=self.intro,
                nothing=self.empty_text or _("No rows."),
                controls=filter_controls(self.filters, asked),
                is_filtered=bool(asked.texts),
                table=Table(head=self.head, rows=self.rows(request, page.rows), numbers=self.numbers),
                actions=[action for action in allowed if not action.is_single],
                query=urlencode(asked.texts),
                next_query=urlencode({**asked.texts, AFTER: page.next}) if page.next else "",
                previous_query=urlencode({**asked.texts, BEFORE: page.previous}) if page.previous else "",
                links=self.links(request),
                selected=SELECTED,
                matching=MATCHING,
                **(extra_context or {}),
            ),
        )

    def page(self, request: HttpRequest, rows: QuerySet[Any], *, order: Sequence[str], size: int, **place: str) -> Page:
        """Return the page of a list at a place, for the page and for the API. Raises: BadRequest."""
        return parted_page_of(rows, self.arms(request), order=self.pinned(order), size=size, **place)

    def arms(self, request: HttpRequest) -> Sequence[Q]:
        """Return a condition per tenant of a user with several: an index serves each, but not all of them together."""
        tenants = tenants_of(request.user) or frozenset()
        is_parted = bool(self.tenant_lookup) and 1 < len(tenants) <= ARMS_MAX
        return [Q(**{self.tenant_lookup: tenant}) for tenant in sorted(tenants)] if is_parted else []

    def pinned(self, order: Sequence[str]) -> Sequence[str]:
        """Return an order with ``pk`` replaced by the field's name, as cursors need it."""
        name = self.opts.pk.name
        return [f"-{name}" if one == "-pk" else name if one == "pk" else one for one in order]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a row's own page."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        row = self.get_row(request, self.key_from(object_id))
        offered = self.eligible_actions(self.actions_for(request), row)
        page = self.detail(request, row)
        return TemplateResponse(
            request,
            "kwit/detail.html",
            self.context(request, title=page.title, detail=page, actions=offered, pk=str(row.pk), selected=SELECTED),
        )

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """
        Refuse: nobody deletes what was recorded.

        Django's own page would look for the row first, by any field that the address names, and fail on an empty name.
        """
        self.get_row(request, self.key_from(object_id))
        raise PermissionDenied

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show Django's own history of a row that the user may see."""
        self.get_row(request, self.key_from(object_id))
        return super().history_view(request, object_id, extra_context)

    def get_row(self, request: HttpRequest, pk: str) -> Any:
        """Return a row the user may see. Raises: Http404, PermissionDenied."""
        try:
            # PostgreSQL takes no NUL in a text, so that no row can have one.
            rows = self.get_queryset(request).filter(pk=self.opts.pk.to_python(pk))
            row = rows.first() if "\x00" not in pk else None
        except (ValidationError, ValueError, OverflowError):
            row = None
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            raise Http404(_("Row not found."))
        return row

    # The actions.

    def actions_for(self, request: HttpRequest) -> list[ListAction]:
        """Return the actions a user is allowed."""
        return [action for action in self.list_actions if request.user.has_perm(action.permission)]

    def eligible_actions(self, actions: Sequence[ListAction], row: Model) -> list[ListAction]:
        """Return which of these actions apply to a row; one query."""
        rows = self.model._default_manager.using(row._state.db)
        asked = {f"may_{action.name}": Exists(action.eligible(rows.filter(pk=OuterRef("pk")))) for action in actions}
        found = rows.filter(pk=row.pk).annotate(**asked).values(*asked).first() if asked else None
        return [action for action in actions if found and found[f"may_{action.name}"]]

    def action_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Ask for confirmation of an action, or run it when confirmed."""
        action = next((one for one in self.list_actions if one.name == name), None)
        if action is None or not self.has_view_permission(request):
            raise Http404(_("Action not found."))
        if not request.user.has_perm(action.permission):
            raise PermissionDenied
        if request.method != "POST":
            return answer_non_post(request, back=self.back(request))
        is_matching = request.POST.get("scope") == MATCHING
        pks = self.posted_keys(request)
        if not is_matching and not pks:
            messages.warning(request, _("No rows were selected."))
            return redirect(self.back(request))
        top = self.top(request)
        rows = action.eligible(self.asked_rows(request, is_matching=is_matching, pks=pks)).filter(pk__lte=top)
        keys, tenant = self.keys_of(rows)
        if action.is_single and len(keys) > 1:
            raise BadRequest("this is done to one row at a time")
        if action.page is not None:
            return action.page(
                self, request, Selection(action=action, rows=rows, keys=keys, top=top, is_matching=is_matching)
            )
        form = self.form_for(request, action, keys)
        if "confirmed" not in request.POST or (form is not None and not form.is_valid()):
            return self.confirm(request, action, keys, top=top, form=form, is_matching=is_matching)
        done = run_action(
            action,
            keys[:ACTION_ROWS_MAX],
            actor=request.user.get_username(),
            using=router.db_for_write(self.model),
            subject=self.opts.label_lower,
            scope=self.scope_text(request, is_matching=is_matching, pks=pks),
            data=form.cleaned_data if form else {},
            tenant=tenant,
        )
        text = ngettext("%(action)s: %(done)d row.", "%(action)s: %(done)d rows.", done)
        messages.success(request, text % {"action": action.label, "done": done})
        if missed := len(keys[:ACTION_ROWS_MAX]) - done:
            text = ngettext("%d row was not changed.", "%d rows were not changed.", missed)
            messages.warning(request, text % missed)
        return redirect(self.back(request))

    def keys_of(self, rows: QuerySet[Any]) -> tuple[list[int], str]:
        """Return the keys that one action may change and one more, and their tenant if it is only one; one query."""
        tenant = F(self.tenant_lookup) if self.tenant_lookup else Value("")
        found = list(rows.order_by("pk").values_list("pk", tenant)[: ACTION_ROWS_MAX + 1])
        tenants = {tenant for _, tenant in found[:ACTION_ROWS_MAX]}
        return [pk for pk, _ in found], tenants.pop() if len(tenants) == 1 else ""

    def form_for(self, request: HttpRequest, action: ListAction, keys: Sequence[int]) -> forms.Form | None:
        """Return an action's form: as it was sent, or with the values of the first row."""
        if action.form is None or "confirmed" in request.POST:
            return action.form(request.POST) if action.form else None
        row = self.get_queryset(request).filter(pk__in=keys[:1]).first() if action.initial else None
        return action.form(initial=action.initial(row) if action.initial and row else None)

    def posted_keys(self, request: HttpRequest) -> list[int]:
        """Return the selected keys, at most a page of them. Raises: BadRequest."""
        try:
            return [parse_integer(text) for text in request.POST.getlist("pk")[: self.page_rows]]
        except ValueError as error:
            raise BadRequest("a key is not a number") from error

    def top(self, request: HttpRequest) -> int:
        """Return the newest key when the number was shown; later rows are not changed."""
        if text := request.POST.get("top"):
            try:
                return parse_integer(text)
            except ValueError as error:
                raise BadRequest("top is not a number") from error
        return self.get_queryset(request).order_by("-pk").values_list("pk", flat=True).first() or 0

    def asked_rows(self, request: HttpRequest, *, is_matching: bool, pks: Sequence[int]) -> QuerySet[Any]:
        """Return the selected rows, or all that match the filter."""
        rows = self.get_queryset(request)
        if is_matching:
            asked = parse_filters(self.filters, request.GET)
            return asked.apply(self.filters, self.list_queryset(request, asked))
        return rows.filter(pk__in=pks)

    def scope_text(self, request: HttpRequest, *, is_matching: bool, pks: Sequence[int]) -> str:
        """Return how the log of actions names the rows."""
        if is_matching:
            return "?" + urlencode(parse_filters(self.filters, request.GET).texts)
        rows = self.get_queryset(request).filter(pk__in=pks).order_by("pk")
        return ", ".join(map(str, rows.values_list(self.label_field, flat=True)))

    def back(self, request: HttpRequest) -> str:
        """Return the URL to return to: the row's own page when the action came from there, else the list."""
        keys = self.posted_keys(request)
        is_from_detail = request.POST.get("from") == "detail" and len(keys) == 1
        if is_from_detail and self.get_queryset(request).filter(pk=keys[0]).exists():
            return self.url("change", keys[0])
        return self.url("changelist", **parse_filters(self.filters, request.GET).texts)

    def confirm(
        self, request: HttpRequest, action: ListAction, keys: Sequence[int], *, top: int, form: Any, is_matching: bool
    ) -> HttpResponse:
        """Show the number of rows and the first of them, and ask for confirmation."""
        number = min(len(keys), ACTION_ROWS_MAX)
        named = self.get_queryset(request).filter(pk__in=keys[:NAMED_ROWS]).order_by("pk")
        notes: list[Text] = []
        left_out = len(self.posted_keys(request)) - number
        if not is_matching and left_out > 0:
            text = ngettext(
                "The action does not apply to %d selected row.",
                "The action does not apply to %d selected rows.",
                left_out,
            )
            notes.append(text % left_out)
        if len(keys) > ACTION_ROWS_MAX:
            notes.append(
                _("More rows match. The action is applied to the first %d; repeat it for the rest.") % ACTION_ROWS_MAX
            )
        hidden = [("scope", MATCHING if is_matching else SELECTED), ("top", str(top)), ("confirmed", "1")]
        hidden += [("from", "detail")] if request.POST.get("from") == "detail" else []
        hidden += [("pk", str(pk)) for pk in self.posted_keys(request)]
        asked = Confirmation(
            title=action.label,
            question=ngettext("%(action)s: %(number)d row?", "%(action)s: %(number)d rows?", number)
            % {"action": action.label, "number": number},
            explains=action.explains,
            button=action.label,
            number=number,
            notes=notes,
            form=form,
            hidden=hidden,
            table=Table(head=self.head, rows=self.rows(request, list(named)), numbers=self.numbers),
            back=self.back(request),
        )
        context = self.context(request, title=asked.title, asked=asked, named_rows=NAMED_ROWS)
        return TemplateResponse(request, "kwit/confirm.html", context)
