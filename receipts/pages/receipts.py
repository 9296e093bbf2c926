"""Receipts: the list, each as it was committed, and the comparison with its rows of now."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.actions import answer_non_post, record_action
from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Cell, Detail, Fact, Link, Row, Section, Table
from kwit.admin.filters import DateTimeFilter, Filter, FilterValues, FlagFilter, equals, parse_filters
from kwit.admin.keyset import Page, count_up_to, parted_page_of
from kwit.db.fields import JSONItems
from kwit.exports import EXPORT_ROWS_MAX
from kwit.people.tenants import of_model

from ..change_types import get_kind
from ..errors import UnknownKind
from ..models import Change, Reconciliation, StoredPlan, Verdict
from ..plans.model import ACTOR_CHARS_MAX
from ..querysets import Found
from ..reconcile import CATEGORIES as COUNTED
from ..reconcile import reconcile, record_reconciliation
from ..sealing.log import Inconsistent
from .badges import FOUND, GENUINE, NEVER, NOT_GENUINE, counts_text, key_from, key_of, receipt_url, url
from .exports import CHUNK_ROWS, DOCUMENTS, LISTS, proof_document, receipt_document, receipts_stream
from .field_tables import audit_table
from .plan_badges import STATES
from .receipt_rows import ROWS_SHOWN, Line, lines_after, place_of, receipt_of, targets_of
from .reconcile import HISTORY_HEAD, HISTORY_NUMBERS, history_row
from .seals import PROOF, find_seal, read_proof, seal_fact

RECONCILE_PERMISSION = "receipts.reconcile"
EXPORT_PERMISSION = "receipts.export"
RESULTS_PERMISSION = "receipts.view_reconciliation"
#: Earlier comparisons shown on a receipt's page; the list of them has all.
HISTORY_SHOWN = 20
#: Plans of one change_id shown; there is one, or a refused one before it.
PLANS_SHOWN = 5


@admin.register(Change)
class ChangeAdmin(ReadOnlyAdmin):
    """What was committed, and how its rows stand."""

    intro = gettext_lazy("One line per receipt, newest first. A receipt is never changed.")
    empty_text = gettext_lazy("No receipt.")
    head = (
        gettext_lazy("change_id"),
        gettext_lazy("kind"),
        gettext_lazy("tenant"),
        gettext_lazy("targets"),
        gettext_lazy("by"),
        gettext_lazy("committed"),
        gettext_lazy("last reconciliation"),
        gettext_lazy("what differed"),
        gettext_lazy("reconciled"),
    )
    tenant_lookup = "tenant"
    names_tenants = True
    numbers = frozenset({3})
    filters = (
        Filter("change_id", gettext_lazy("change_id"), equals("pk")),
        Filter("kind", gettext_lazy("Kind"), equals("kind")),
        Filter("tenant", gettext_lazy("Tenant"), equals("tenant")),
        DateTimeFilter("since", gettext_lazy("From"), equals("created_at__gte")),
        DateTimeFilter("until", gettext_lazy("To"), equals("created_at__lte"), is_end=True),
        FlagFilter("differs", gettext_lazy("Differs at last reconciliation"), lambda rows, value: rows),
    )

    # The list.

    def order_for(self, asked: FilterValues) -> Sequence[str]:
        """Return newest first; each filter has an index with this order."""
        return ("-created_at", "-change_id")

    def list_queryset(self, request: HttpRequest, asked: FilterValues) -> QuerySet[Any]:
        """Return receipts, or the verdicts of those that differ: they have the same columns, and the index for it."""
        for name, found in (("broken", Found.BROKEN), ("differs", Found.DIFFERS)):
            if name in asked.values:
                return of_model(request.user, Verdict).filter(found=found)
        return self.get_queryset(request).only("change_id", "created_at")

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per receipt; two queries."""
        return [Row(cells=self.cells(*one)) for one in look_up([row.pk for row in found])]

    def cells(self, change: Any, verdict: Mapping[str, Any] | None) -> list[Cell]:
        """Return a receipt's cells."""
        link = receipt_url(change.pk)
        badge = NEVER if verdict is None else FOUND[verdict["found"]]
        return [
            Cell(text=change.pk, is_code=True, url=link),
            Cell(text=change.kind),
            Cell(text=change.tenant),
            Cell(text=NONE if change.items is None else change.items, is_number=True),
            Cell(text=change.actor),
            Cell(at=change.created_at),
            Cell(badge=badge),
            Cell(text=counts_text(verdict) if verdict else ""),
            Cell(at=verdict["taken_at"]) if verdict else Cell(text=NONE),
        ]

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return the ways to reconciliations, to reconcile all, and to the list as a file."""
        found = []
        if request.user.has_perm(RESULTS_PERMISSION):
            found.append(Link(_("Reconciliations of all"), url("reconciliationrun")))
            if request.user.has_perm(RECONCILE_PERMISSION):
                found.append(Link(_("Reconcile all"), url("reconciliationrun", "start")))
        if request.user.has_perm(EXPORT_PERMISSION):
            texts = parse_filters(self.filters, request.GET).texts
            found += [
                Link(_("This list as %s") % shape.upper(), url("change", "exports", shape, **texts)) for shape in LISTS
            ]
        return found

    # A receipt.

    def key_of(self, pk: Any) -> str:
        """Return what stands for a change_id in an address."""
        return key_of(pk)

    def key_from(self, text: str) -> str:
        """Return the change_id that an address names."""
        return key_from(text)

    def get_row(self, request: HttpRequest, pk: str) -> Any:
        """Return a receipt the user may see. Raises: Http404, PermissionDenied."""
        row = super().get_row(request, pk)
        # SQL Server takes a key with a blank at its end for the same.
        if row.pk != pk:
            raise Http404(_("Row not found."))
        return row

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a receipt as committed."""
        after = place_of(request.GET.get("after", ""))
        lines = lines_after(row, after, limit=ROWS_SHOWN + 1)
        pages = [Link(_("First page"), receipt_url(row.pk))] if after is not None else []
        if len(lines) > ROWS_SHOWN:
            pages.append(Link(_("Next page"), receipt_url(row.pk, after=lines[ROWS_SHOWN - 1].id)))
        sections = [Section(facts=self.facts(request, row))]
        if row.reason:
            sections.append(Section(title=_("Reason"), text=row.reason))
        if problem := explain_undeclared(row.kind):
            sections.append(Section(text=problem))
        audited = [one.audit for one in lines[:ROWS_SHOWN] if one.audit is not None and one.audit.fields]
        table = Table(head=line_head(), rows=[line_row(one) for one in lines[:ROWS_SHOWN]], numbers=LINE_NUMBERS)
        if audited:
            table = audit_table(audited)
        sections.append(Section(title=_("As committed"), table=table, pages=pages))
        if request.user.has_perm(RESULTS_PERMISSION):
            sections.append(self.history(row))
        return Detail(
            title=_("Receipt %s") % row.pk,
            sections=sections,
            links=self.ways(request, row),
            buttons=self.buttons(request, row) if not problem else (),
        )

    def facts(self, request: HttpRequest, row: Any) -> list[Fact]:
        """Return what a receipt's head says."""
        targets, receipt = targets_of(row), receipt_of(row, is_whole=False)
        is_genuine = receipt is not None and receipt.is_genuine
        facts = [
            Fact(name=_("change_id"), cell=Cell(text=row.pk, is_code=True)),
            Fact(name=_("kind"), cell=Cell(text=row.kind, url=url("change", kind=row.kind))),
            Fact(name=_("tenant"), cell=Cell(text=row.tenant, url=url("change", tenant=row.tenant))),
            Fact(name=_("targets"), cell=Cell(text=NONE if targets is None else len(targets))),
            Fact(name=_("by"), cell=Cell(text=row.actor or NONE)),
            *([Fact(name=_("author"), cell=Cell(text=row.author))] if row.author else []),
            *([Fact(name=_("approver"), cell=Cell(text=row.approver))] if row.approver else []),
            Fact(name=_("committed"), cell=Cell(at=row.created_at)),
            Fact(name=_("digest"), cell=Cell(text=row.digest, is_code=True)),
            Fact(name=_("digest is"), cell=Cell(badge=GENUINE if is_genuine else NOT_GENUINE)),
            seal_fact(find_seal(row.pk)),
        ]
        if self.url_if_allowed(request, StoredPlan, "changelist"):
            # The tenant's own: another one may have a plan that was refused for this very change_id.
            plans = StoredPlan.objects.filter(change_id=row.pk, tenant=row.tenant).order_by("-pk")
            for pk, state in plans.values_list("pk", "state")[:PLANS_SHOWN]:
                cell = Cell(
                    badge=STATES.get(state), text=f" {pk}", url=self.url_if_allowed(request, StoredPlan, "change", pk)
                )
                facts.append(Fact(name=_("plan"), cell=cell))
        return facts

    def history(self, row: Any) -> Section:
        """Return the latest comparisons."""
        kept = Reconciliation.objects.filter(change=row).defer("items").order_by("-taken_at", "-pk")
        found = list(kept[: HISTORY_SHOWN + 1])
        more = [Link(_("All of them"), url("reconciliation", change_id=row.pk))] if len(found) > HISTORY_SHOWN else []
        title = _("Earlier reconciliations, the newest first")
        if not found:
            return Section(title=title, text=_("It has never been compared with its rows."))
        rows = [history_row(one) for one in found[:HISTORY_SHOWN]]
        return Section(title=title, table=Table(head=HISTORY_HEAD, rows=rows, numbers=HISTORY_NUMBERS), pages=more)

    def ways(self, request: HttpRequest, row: Any) -> list[Link]:
        """Return the ways to a receipt as a file or on paper."""
        if not request.user.has_perm(EXPORT_PERMISSION):
            return []
        shapes = {**DOCUMENTS, PROOF: gettext_lazy("Proof of the seal")}
        return [Link(word, receipt_url(row.pk, "export", shape)) for shape, word in shapes.items()]

    def buttons(self, request: HttpRequest, row: Any) -> list[Link]:
        """Return what can be done to a receipt."""
        may = request.user.has_perm(RECONCILE_PERMISSION) and request.user.has_perm(RESULTS_PERMISSION)
        return [Link(_("Reconcile now"), receipt_url(row.pk, "reconcile"))] if may else []

    # Pages beside them.

    def get_urls(self) -> list[URLPattern]:
        """Add the comparison and the exports, which commit by themselves or take long: no transaction around them."""
        pages = (
            ("export/<slug:shape>/", self.exports_view, "exports"),
            ("<path:object_id>/export/<slug:shape>/", self.export_view, "export"),
            ("<path:object_id>/reconcile/", self.reconcile_view, "reconcile"),
        )
        mine = [
            path(route, transaction.non_atomic_requests(self.admin_site.admin_view(view)), name=self.url_name(name))
            for route, view, name in pages
        ]
        return [*mine, *super().get_urls()]

    def reconcile_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Compare a receipt with its rows of now, keep the result, and lead to it."""
        row = self.get_row(request, self.key_from(object_id))
        if not request.user.has_perm(RECONCILE_PERMISSION) or not request.user.has_perm(RESULTS_PERMISSION):
            raise PermissionDenied
        if request.method != "POST":
            return answer_non_post(request, back=receipt_url(row.pk))
        actor, alias = request.user.get_username(), router.db_for_write(Change)
        try:
            with record_action(
                actor=actor,
                name="reconcile",
                subject=self.opts.label_lower,
                scope=row.pk,
                asked=1,
                tenant=row.tenant,
            ) as doing:
                (result,) = reconcile(change_ids=[row.pk], using=alias)
                kept = record_reconciliation(result, actor=actor[:ACTOR_CHARS_MAX], using=alias)
                doing.done, doing.note = 1, ", ".join(f"{getattr(result, one)} {one}" for one in COUNTED)
        except UnknownKind:
            messages.error(request, explain_undeclared(row.kind))
            return redirect(receipt_url(row.pk))
        return redirect(url("reconciliation", "change", kept.pk))

    def export_view(self, request: HttpRequest, object_id: str, shape: str) -> HttpResponse:
        """Give a receipt as a file or as a page to print."""
        row = self.get_row(request, self.key_from(object_id))
        if not request.user.has_perm(EXPORT_PERMISSION):
            raise PermissionDenied
        if shape not in (*DOCUMENTS, PROOF):
            raise Http404(_("There is no such form of it."))
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        if shape == PROOF:
            return self.send_proof(request, row)
        receipt = receipt_of(row)
        if receipt is None:
            messages.error(request, _("The targets of this receipt are not what Kwit writes; it cannot be exported."))
            return redirect(receipt_url(row.pk))
        return receipt_document(request, receipt, shape)

    def send_proof(self, request: HttpRequest, row: Any) -> HttpResponse:
        """Give the proof of a sealed receipt."""
        try:
            proof = read_proof(row.pk)
        except Inconsistent:
            messages.error(request, _("The log of sealed receipts is damaged; manage.py receipts_audit_log says how."))
            return redirect(receipt_url(row.pk))
        if proof is None:
            messages.error(request, _("This receipt is not yet sealed; manage.py receipts_seal seals it."))
            return redirect(receipt_url(row.pk))
        return proof_document(request, row, proof)

    def exports_view(self, request: HttpRequest, shape: str) -> HttpResponse:
        """Give the list as filtered, as a file that is made while it is sent."""
        if not self.has_view_permission(request) or not request.user.has_perm(EXPORT_PERMISSION):
            raise PermissionDenied
        if shape not in LISTS:
            raise Http404(_("There is no such form of it."))
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        asked = parse_filters(self.filters, request.GET)
        if asked.errors or (unknown := sorted(set(request.GET) - {one.name for one in self.filters})):
            unknown_text = "" if asked.errors else _("There is no filter “%s”.") % unknown[0][:40]
            return refused_export(" ".join(asked.errors.values()) or unknown_text)
        rows = asked.apply(self.filters, self.list_queryset(request, asked))
        if count_up_to(rows, most=EXPORT_ROWS_MAX) > EXPORT_ROWS_MAX:
            text = _("More than %d receipts match. Narrow the filter, for example by time, and export in parts.")
            return refused_export(text % EXPORT_ROWS_MAX)
        order = self.pinned(self.order_of(request, asked))

        def page_after(after: str) -> Page:
            return parted_page_of(rows, self.arms(request), order=order, size=CHUNK_ROWS, after=after)

        return receipts_stream(request, shape, page_after=page_after, look_up=look_up, texts=asked.texts)


def refused_export(text: str) -> HttpResponse:
    """Return why no file was made: for a program a status, for a person a sentence."""
    return HttpResponse(text, content_type="text/plain; charset=utf-8", status=HTTPStatus.BAD_REQUEST)


def look_up(keys: Sequence[str]) -> list[tuple[Any, Mapping[str, Any] | None]]:
    """Return these receipts in this order, each with its latest verdict; two queries."""
    changes = Change.objects.defer("targets", "reason").annotate(items=JSONItems("targets")).in_bulk(keys)
    columns = {name: f"reconciliation__{name}" for name in ("taken_at", "match", "changed", "missing", "broken")}
    values = Verdict.objects.filter(pk__in=keys).values_list("change_id", "found", *columns.values())
    verdicts = {key: dict(zip(("found", *columns), rest, strict=True)) for key, *rest in values}
    return [(changes[key], verdicts.get(key)) for key in keys if key in changes]


def explain_undeclared(kind: str) -> str:
    """Return why a receipt cannot be compared; empty when it can."""
    try:
        get_kind(kind)
    except UnknownKind:
        return (
            _(
                "No app of this site declares the kind of change “%s” any more. The receipt can be read and exported, "
                "but not compared with its rows. Declare the kind in an app's changes.py to compare it."
            )
            % kind
        )
    return ""


def line_head() -> list[str]:
    """Return the headings of a receipt's rows."""
    return [
        _("id"),
        _("revision approved"),
        _("qty approved"),
        _("revision before"),
        _("revision after"),
        _("qty"),
        _("state before"),
        _("state after"),
    ]


LINE_NUMBERS = frozenset(range(6))


def line_row(line: Line) -> Row:
    """Return one id's line; where what was committed is not what was approved, it is marked."""
    approved, audit = line.approved, line.audit
    is_other = approved is None or audit is None
    before = is_other or audit.revision_before != approved.revision  # type: ignore[union-attr]
    qty = is_other or audit.qty != approved.qty  # type: ignore[union-attr]
    return Row(
        cells=[
            Cell(text=line.id, is_number=True),
            Cell(text=approved.revision if approved else NONE, is_number=True),
            Cell(text=approved.qty if approved else NONE, is_number=True),
            Cell(text=audit.revision_before if audit else NONE, is_number=True, is_marked=before),
            Cell(text=audit.revision_after if audit else NONE, is_number=True),
            Cell(text=audit.qty if audit else NONE, is_number=True, is_marked=qty),
            Cell(text=audit.state_before if audit else NONE),
            Cell(text=audit.state_after if audit else NONE),
        ]
    )
