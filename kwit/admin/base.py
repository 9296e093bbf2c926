"""
The base of every admin class here: a window, not a door.

Lists by key without counting, filters on indexed columns, details as plain facts, and actions of their own
permission that ask once more on a page that shows the numbers. Nothing is added, changed or deleted.

Rows of a tenant are there for its members only: every page begins with ``get_queryset``, which knows no others.
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

#: Rows a confirmation page names.
NAMED_ROWS = 10
#: Tenants of one user whose newest rows are sought one by one; of more than that, all rows are sought at once.
ARMS_MAX = 20


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Lists and shows rows; an engine says how a row looks and what may be done."""

    #: Leads from a row to its tenant: ``tenant``, ``change__tenant``. Without it the rows are the installation's, and
    #: only those who see all tenants see them.
    tenant_lookup: ClassVar[str] = ""
    #: Said by a class whose rows belong to no tenant and tell nothing of one: whoever may view them sees them all.
    is_for_everybody: ClassVar[bool] = False
    page_rows = 50
    filters: ClassVar[Sequence[Filter]] = ()
    #: Tells ``StrictPolicyMiddleware`` that it protects these pages.
    is_kwit_page = True
    list_actions: ClassVar[Sequence[ListAction]] = ()
    head: ClassVar[Sequence[Text]] = ()
    #: Places in ``head`` whose cells are numbers.
    numbers: ClassVar[frozenset[int]] = frozenset()
    intro: ClassVar[Text] = ""
    empty_text: ClassVar[Text] = ""
    #: What the record of an action calls the selected rows by; a key says nothing of a row that is gone.
    label_field = "pk"
    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows come from the engine."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody edits what was recorded."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody deletes what was recorded."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whoever may view the model; when it is the installation's, only those who see all tenants."""
        is_open = bool(self.tenant_lookup) or self.is_for_everybody or tenants_of(request.user) is None
        return is_open and super().has_view_permission(request, obj)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that the user may see: what is not among them is not there, for every page and action."""
        rows = super().get_queryset(request)
        if self.tenant_lookup:
            return within(rows, request.user, self.tenant_lookup)
        return rows if self.is_for_everybody or tenants_of(request.user) is None else rows.none()

    # What an engine says.

    def order_for(self, asked: FilterValues) -> Sequence[str]:
        """Return the order of the list: one that an index serves under these filters."""
        return ("-pk",)

    def order_of(self, request: HttpRequest, asked: FilterValues) -> Sequence[str]:
        """Return the order for this user: members of tenants may need another index than those who see all."""
        return self.order_for(asked)

    def list_queryset(self, request: HttpRequest, asked: FilterValues) -> QuerySet[Any]:
        """Return the rows of the list before its filters."""
        return self.get_queryset(request)

    def key_of(self, pk: Any) -> str:
        """Return what stands for a key in an address; ``key_from`` reads it back."""
        return quote(pk)

    def key_from(self, text: str) -> str:
        """Return the key that an address names."""
        return unquote(text)

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return the lines of a page; a fixed number of queries."""
        raise NotImplementedError

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a row's own page; a fixed number of queries."""
        raise NotImplementedError

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return the ways from the list to pages beside it."""
        return ()

    # The pages.

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the actions; they commit by themselves, so no request-wide transaction around them."""
        act = transaction.non_atomic_requests(self.admin_site.admin_view(self.action_view))
        return [path("act/<slug:name>/", act, name=self.url_name("act")), *super().get_urls()]

    def url_name(self, page: str) -> str:
        """Return the name of one of this class's addresses."""
        return f"{self.opts.app_label}_{self.opts.model_name}_{page}"

    def url(self, page: str, *args: Any, **query: Any) -> str:
        """Return one of this class's addresses."""
        return self.url_of(self.model, page, *args, **query)

    def url_of(self, model: type[Model], page: str, *args: Any, **query: Any) -> str:
        """Return an address of another model's admin on the same site."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
        address = reverse(name, args=args, current_app=self.admin_site.name)
        return f"{address}?{urlencode(query)}" if query else address

    def url_if_allowed(self, request: HttpRequest, model: type[Model], page: str, *args: Any, **query: Any) -> str:
        """Return an address of another model's admin, empty when this user may not see it."""
        is_there = self.admin_site.is_registered(model)
        is_allowed = is_there and self.admin_site.get_model_admin(model).has_view_permission(request)
        return self.url_of(model, page, *args, **query) if is_allowed else ""

    def context(self, request: HttpRequest, **more: Any) -> dict[str, Any]:
        """Return what every page needs."""
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
                nothing=self.empty_text or _("Nothing here."),
                controls=filter_controls(self.filters, asked),
                is_filtered=bool(asked.texts),
                table=Table(head=self.head, rows=self.rows(request, page.rows), numbers=self.numbers),
                acts=[act for act in allowed if not act.is_single],
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
        """Return a condition per tenant of a user who has several: each has an index, all of them together none."""
        tenants = tenants_of(request.user) or frozenset()
        is_parted = bool(self.tenant_lookup) and 1 < len(tenants) <= ARMS_MAX
        return [Q(**{self.tenant_lookup: tenant}) for tenant in sorted(tenants)] if is_parted else []

    def pinned(self, order: Sequence[str]) -> Sequence[str]:
        """Return an order with ``pk`` by its field's name, as cursors need it."""
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
            self.context(request, title=page.title, detail=page, acts=offered, pk=str(row.pk), selected=SELECTED),
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
        """Show Django's own history of a row; of one that is not there, or another tenant's, nothing."""
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
            raise Http404(_("There is no such row."))
        return row

    # The actions.

    def actions_for(self, request: HttpRequest) -> list[ListAction]:
        """Return the actions a user is allowed."""
        return [act for act in self.list_actions if request.user.has_perm(act.permission)]

    def eligible_actions(self, acts: Sequence[ListAction], row: Model) -> list[ListAction]:
        """Return which of these actions can be done to a row; one query."""
        rows = self.model._default_manager.using(row._state.db)
        asked = {f"may_{act.name}": Exists(act.eligible(rows.filter(pk=OuterRef("pk")))) for act in acts}
        found = rows.filter(pk=row.pk).annotate(**asked).values(*asked).first() if asked else None
        return [act for act in acts if found and found[f"may_{act.name}"]]

    def action_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Ask for confirmation of an action, or do it when confirmed."""
        act = next((one for one in self.list_actions if one.name == name), None)
        if act is None or not self.has_view_permission(request):
            raise Http404(_("There is no such action."))
        if not request.user.has_perm(act.permission):
            raise PermissionDenied
        if request.method != "POST":
            return answer_non_post(request, back=self.back(request))
        is_matching = request.POST.get("scope") == MATCHING
        pks = self.posted_keys(request)
        if not is_matching and not pks:
            messages.warning(request, _("Nothing was selected."))
            return redirect(self.back(request))
        top = self.top(request)
        rows = act.eligible(self.asked_rows(request, is_matching=is_matching, pks=pks)).filter(pk__lte=top)
        keys, tenant = self.keys_of(rows)
        if act.is_single and len(keys) > 1:
            raise BadRequest("this is done to one row at a time")
        if act.page is not None:
            return act.page(self, request, Selection(act=act, rows=rows, keys=keys, top=top, is_matching=is_matching))
        form = self.form_for(request, act, keys)
        if "confirmed" not in request.POST or (form is not None and not form.is_valid()):
            return self.confirm(request, act, keys, top=top, form=form, is_matching=is_matching)
        done = run_action(
            act,
            keys[:ACTION_ROWS_MAX],
            actor=request.user.get_username(),
            using=router.db_for_write(self.model),
            subject=self.opts.label_lower,
            scope=self.scope_text(request, is_matching=is_matching, pks=pks),
            data=form.cleaned_data if form else {},
            tenant=tenant,
        )
        text = ngettext("%(act)s: %(done)d row.", "%(act)s: %(done)d rows.", done)
        messages.success(request, text % {"act": act.label, "done": done})
        if missed := len(keys[:ACTION_ROWS_MAX]) - done:
            text = ngettext("%d row was left as it is.", "%d rows were left as they are.", missed)
            messages.warning(request, text % missed)
        return redirect(self.back(request))

    def keys_of(self, rows: QuerySet[Any]) -> tuple[list[int], str]:
        """Return the keys that one action may touch and one more, and their tenant when they are of one; one query."""
        tenant = F(self.tenant_lookup) if self.tenant_lookup else Value("")
        found = list(rows.order_by("pk").values_list("pk", tenant)[: ACTION_ROWS_MAX + 1])
        tenants = {tenant for _, tenant in found[:ACTION_ROWS_MAX]}
        return [pk for pk, _ in found], tenants.pop() if len(tenants) == 1 else ""

    def form_for(self, request: HttpRequest, act: ListAction, keys: Sequence[int]) -> forms.Form | None:
        """Return an action's form: as it was sent, or as the first of the rows is now."""
        if act.form is None or "confirmed" in request.POST:
            return act.form(request.POST) if act.form else None
        row = self.get_queryset(request).filter(pk__in=keys[:1]).first() if act.initial else None
        return act.form(initial=act.initial(row) if act.initial and row else None)

    def posted_keys(self, request: HttpRequest) -> list[int]:
        """Return the selected keys, at most a page of them. Raises: BadRequest."""
        try:
            return [parse_integer(text) for text in request.POST.getlist("pk")[: self.page_rows]]
        except ValueError as error:
            raise BadRequest("a key is not a number") from error

    def top(self, request: HttpRequest) -> int:
        """Return the newest row there was when the number was shown: what came later is not touched."""
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
        """Return what the action's row says about which rows."""
        if is_matching:
            return "?" + urlencode(parse_filters(self.filters, request.GET).texts)
        rows = self.get_queryset(request).filter(pk__in=pks).order_by("pk")
        return ", ".join(map(str, rows.values_list(self.label_field, flat=True)))

    def back(self, request: HttpRequest) -> str:
        """Return where an action leads: to the row's own page when it came from there, else to the list."""
        keys = self.posted_keys(request)
        is_from_detail = request.POST.get("from") == "detail" and len(keys) == 1
        if is_from_detail and self.get_queryset(request).filter(pk=keys[0]).exists():
            return self.url("change", keys[0])
        return self.url("changelist", **parse_filters(self.filters, request.GET).texts)

    def confirm(
        self, request: HttpRequest, act: ListAction, keys: Sequence[int], *, top: int, form: Any, is_matching: bool
    ) -> HttpResponse:
        """Show the number and the first of the rows, and ask once more."""
        number = min(len(keys), ACTION_ROWS_MAX)
        named = self.get_queryset(request).filter(pk__in=keys[:NAMED_ROWS]).order_by("pk")
        notes: list[Text] = []
        left_out = len(self.posted_keys(request)) - number
        if not is_matching and left_out > 0:
            text = ngettext("%d selected row does not allow it.", "%d selected rows do not allow it.", left_out)
            notes.append(text % left_out)
        if len(keys) > ACTION_ROWS_MAX:
            notes.append(_("More rows match. This takes the first %d; repeat it for the rest.") % ACTION_ROWS_MAX)
        hidden = [("scope", MATCHING if is_matching else SELECTED), ("top", str(top)), ("confirmed", "1")]
        hidden += [("from", "detail")] if request.POST.get("from") == "detail" else []
        hidden += [("pk", str(pk)) for pk in self.posted_keys(request)]
        asked = Confirmation(
            title=act.label,
            question=ngettext("%(act)s: %(number)d row?", "%(act)s: %(number)d rows?", number)
            % {"act": act.label, "number": number},
            explains=act.explains,
            button=act.label,
            number=number,
            notes=notes,
            form=form,
            hidden=hidden,
            table=Table(head=self.head, rows=self.rows(request, list(named)), numbers=self.numbers),
            back=self.back(request),
        )
        context = self.context(request, title=asked.title, asked=asked, named_rows=NAMED_ROWS)
        return TemplateResponse(request, "kwit/confirm.html", context)
