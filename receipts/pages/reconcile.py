"""Stored reconciliations: recorded and then-current values side by side. They offer no way back and name no cause."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Badge, Cell, Detail, Fact, Link, Row, Section, Table
from kwit.admin.filters import Filter, FilterValues, equals

from ..models import Change, Reconciliation
from ..reconcile import Item, conclude
from ..reconcile import Row as StandingRow
from .badges import CATEGORIES, FOUND, receipt_url, url
from .exports import DOCUMENTS, reconciliation_document
from .field_tables import has_fields, item_cells
from .receipt_rows import ROWS_SHOWN, items_after, place_of, receipt_of

EXPORT_PERMISSION = "receipts.export"
CATEGORY = "category"
HISTORY_HEAD = (
    gettext_lazy("reconciled"),
    gettext_lazy("receipt"),
    gettext_lazy("by"),
    gettext_lazy("verdict"),
    gettext_lazy("match"),
    gettext_lazy("changed"),
    gettext_lazy("missing"),
    gettext_lazy("broken"),
)
HISTORY_NUMBERS = frozenset({4, 5, 6, 7})


def verdict_of(kept: Reconciliation) -> Badge:
    """Return what a reconciliation found."""
    return FOUND[conclude(kept)]


def history_row(kept: Reconciliation) -> Row:
    """Return one reconciliation's line."""
    link = url("reconciliation", "change", kept.pk)
    return Row(
        cells=[
            Cell(at=kept.taken_at, url=link),
            Cell(text=kept.change_id, is_code=True, url=receipt_url(kept.change_id)),
            Cell(text=kept.actor or NONE),
            Cell(badge=verdict_of(kept)),
            *(
                Cell(text=getattr(kept, name), is_number=True, url=f"{link}?{CATEGORY}={name}")
                for name in ("match", "changed", "missing", "broken")
            ),
        ]
    )


@admin.register(Reconciliation)
class ReconciliationAdmin(ReadOnlyAdmin):
    """Each comparison of a receipt with its rows."""

    intro = gettext_lazy("One line per comparison of a receipt with its rows, newest first.")
    empty_text = gettext_lazy("No receipt has been compared with its rows.")
    head = HISTORY_HEAD
    tenant_lookup = "tenant"
    numbers = HISTORY_NUMBERS
    filters = (Filter("change_id", gettext_lazy("change_id"), equals("change_id")),)

    def list_queryset(self, request: HttpRequest, asked: FilterValues) -> QuerySet[Any]:
        """Return the rows without what each of them found, which may be long."""
        return super().list_queryset(request, asked).defer("items")

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per reconciliation."""
        return [history_row(kept) for kept in found]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return recorded and then-current values side by side."""
        category = request.GET.get(CATEGORY, "")
        category = category if category in CATEGORIES else ""
        after = place_of(request.GET.get("after", ""))
        items = items_after(row, category, after, limit=ROWS_SHOWN + 1)
        return Detail(
            title=_("Reconciliation of %s") % row.change_id,
            badge=verdict_of(row),
            sections=[
                Section(facts=self.facts(row), lines=PLAIN_WORDS),
                Section(
                    title=_("Recorded and current, as of then"),
                    choices=choices_of(row, category),
                    table=items_table(items[:ROWS_SHOWN]),
                    text="" if items else _("Nothing here."),
                    pages=pages_of(row, category, after, items),
                ),
            ],
            links=self.ways(request, row),
        )

    def facts(self, row: Any) -> list[Fact]:
        """Return what a reconciliation's head says."""
        return [
            Fact(name=_("receipt"), cell=Cell(text=row.change_id, is_code=True, url=receipt_url(row.change_id))),
            Fact(name=_("as of"), cell=Cell(at=row.taken_at)),
            Fact(name=_("by"), cell=Cell(text=row.actor or NONE)),
            *(
                Fact(name=badge.word, cell=Cell(text=getattr(row, name), url=choice_url(row, name)))
                for name, badge in CATEGORIES.items()
            ),
        ]

    def ways(self, request: HttpRequest, row: Any) -> list[Link]:
        """Return the ways to the receipt, and to this as a file or on paper."""
        found = [
            Link(_("The receipt"), receipt_url(row.change_id)),
            Link(_("All reconciliations of this receipt"), url("reconciliation", change_id=row.change_id)),
        ]
        if request.user.has_perm(EXPORT_PERMISSION):
            found += [Link(word, url("reconciliation", "export", row.pk, shape)) for shape, word in DOCUMENTS.items()]
        return found

    def get_urls(self) -> list[URLPattern]:
        """Add the exports."""
        export = transaction.non_atomic_requests(self.admin_site.admin_view(self.export_view))
        return [
            path("<int:pk>/export/<slug:shape>/", export, name=self.url_name("export")),
            *super().get_urls(),
        ]

    def export_view(self, request: HttpRequest, pk: int, shape: str) -> HttpResponse:
        """Give a reconciliation as a file or as a page to print."""
        row = self.get_row(request, str(pk))
        if not request.user.has_perm(EXPORT_PERMISSION):
            raise PermissionDenied
        if shape not in DOCUMENTS:
            raise Http404(_("There is no such form of it."))
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        change = Change.objects.get(pk=row.change_id)
        receipt = receipt_of(change, is_whole=False)
        is_genuine = receipt is not None and receipt.is_genuine
        return reconciliation_document(request, row, change, items_after(row, "", None), shape, is_genuine=is_genuine)


PLAIN_WORDS = (
    gettext_lazy("Each target as the receipt records it, beside its row as it stood at that moment."),
    gettext_lazy(
        "What differs was changed after the change was committed. Nothing here says by whom or why, and nothing here "
        "is put back: whether that is right is for people to find out."
    ),
    gettext_lazy("“missing”: this tenant has no such row any more."),
    gettext_lazy("“broken”: the receipt and its audit rows disagree; see what was done to the tables of receipts."),
)


def choice_url(row: Reconciliation, category: str) -> str:
    """Return the address of one category's part."""
    link = url("reconciliation", "change", row.pk)
    return f"{link}?{CATEGORY}={category}" if category else link


def choices_of(row: Reconciliation, chosen: str) -> list[Link]:
    """Return the categories with their numbers, the chosen one without an address."""
    numbers = {name: getattr(row, name) for name in CATEGORIES}
    words = {"": (_("all"), sum(numbers.values()))} | {
        name: (str(badge.word), numbers[name]) for name, badge in CATEGORIES.items()
    }
    return [
        Link(f"{word}: {number}", "" if name == chosen else choice_url(row, name))
        for name, (word, number) in words.items()
    ]


def pages_of(row: Reconciliation, category: str, after: int | None, items: Sequence[Item]) -> list[Link]:
    """Return the ways to the first and the next page."""
    query = {CATEGORY: category} if category else {}
    found = []
    if after is not None:
        found.append(Link(_("First page"), choice_url(row, category)))
    if len(items) > ROWS_SHOWN:
        last = items[ROWS_SHOWN - 1].id
        found.append(Link(_("Next page"), url("reconciliation", "change", row.pk, **query, after=last)))
    return found


def items_table(items: Sequence[Item]) -> Table:
    """Return a page of targets, recorded and current side by side."""
    if has_fields(items):
        rows = [Row(cells=[*item_row(item).cells[:2], *item_cells(item)]) for item in items]
        head = [*item_head()[:2], _("recorded"), _("current, where it differs")]
        return Table(head=head, rows=rows, numbers=frozenset({0}))
    return Table(head=item_head(), rows=[item_row(item) for item in items], numbers=ITEM_NUMBERS)


def item_head() -> list[str]:
    """Return the headings of a reconciliation's rows."""
    return [
        _("id"),
        _("category"),
        _("revision recorded"),
        _("revision current"),
        _("qty recorded"),
        _("qty current"),
        _("state recorded"),
        _("state current"),
    ]


ITEM_NUMBERS = frozenset({0, 2, 3, 4, 5})


def item_row(item: Item) -> Row:
    """Return one target's line; the cells that differ are marked."""
    cells = [
        Cell(text=item.id, is_number=True),
        Cell(badge=CATEGORIES.get(item.category), text="" if item.category in CATEGORIES else item.category),
    ]
    for name in StandingRow._fields:
        recorded = getattr(item.recorded, name) if item.recorded is not None else None
        current = getattr(item.current, name) if item.current is not None else None
        is_marked = item.current is None or name in item.fields
        is_number = name != "state"
        cells += [
            Cell(text=NONE if recorded is None else recorded, is_number=is_number),
            Cell(text=NONE if current is None else current, is_number=is_number, is_marked=is_marked),
        ]
    return Row(cells=cells)
