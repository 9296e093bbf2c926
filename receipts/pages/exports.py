"""Receipts, reconciliations and lists as CSV, as JSON, and to print; each export is recorded."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.actions import record_action
from kwit.admin.components import NONE, Badge, Cell, Fact, Row, Table, Text
from kwit.admin.keyset import Page
from kwit.exports import as_file, csv_lines, with_first_read
from kwit.people.tenants import sees

from ..models import Change, Reconciliation
from ..receipt import Receipt
from ..reconcile import FieldValues, Item
from .badges import CATEGORIES, GENUINE, NOT_GENUINE
from .receipt_rows import as_json
from .seals import Mark, make_mark

#: The forms of one receipt or reconciliation, and of a list.
DOCUMENTS: dict[str, Text] = {
    "csv": gettext_lazy("As CSV"),
    "json": gettext_lazy("As JSON"),
    "print": gettext_lazy("To print"),
}
LISTS = ("csv", "json")
#: Receipts read at once while a list is sent.
CHUNK_ROWS = 500


# One receipt.

RECEIPT_HEAD = (
    *("change_id", "kind", "tenant", "actor", "reason", "created_at", "digest", "target_id"),
    *("revision_approved", "qty_approved", "revision_before", "revision_after", "qty", "state_before", "state_after"),
    "fields",
)


def receipt_rows(receipt: Receipt) -> Iterator[list[Any]]:
    """Yield a receipt row by row, each with the receipt's head."""
    head = [receipt.change_id, receipt.kind, receipt.tenant, receipt.actor, receipt.reason, receipt.created_at]
    approved, audit = {one.id: one for one in receipt.targets}, {one.target_id: one for one in receipt.audit}
    for pk in sorted({*approved, *audit}):
        plan = [approved[pk].revision, approved[pk].qty] if pk in approved else [None, None]
        done = [*audit[pk][1:6], audit[pk].fields_text()] if pk in audit else [None] * 6
        yield [*head, receipt.digest, pk, *plan, *done]


def receipt_document(request: HttpRequest, receipt: Receipt, shape: str) -> HttpResponse:
    """Return a receipt as CSV, as ``inspect_change --json`` prints it, or as a page to print."""
    record = {"subject": Change._meta.label_lower, "scope": receipt.change_id, "asked": 1, "tenant": receipt.tenant}
    if shape == "print":
        facts = [
            Fact(name=_("kind"), cell=Cell(text=receipt.kind)),
            Fact(name=_("tenant"), cell=Cell(text=receipt.tenant)),
            Fact(name=_("by"), cell=Cell(text=receipt.actor)),
            Fact(name=_("committed"), cell=Cell(at=receipt.created_at)),
            Fact(name=_("targets"), cell=Cell(text=len(receipt.targets))),
            Fact(name=_("digest is"), cell=Cell(badge=GENUINE if receipt.is_genuine else NOT_GENUINE)),
            Fact(name=_("reason"), cell=Cell(text=receipt.reason)),
        ]
        rows = [row[7:] for row in receipt_rows(receipt)]
        title = _("Receipt %s") % receipt.change_id
        mark = make_mark(receipt.change_id)
        return print_page(request, title, receipt.digest, facts, RECEIPT_HEAD[7:], rows, record=record, mark=mark)
    name = f"receipt-{receipt.change_id}"
    if shape == "json":
        lines: Iterable[str] = [json.dumps(receipt.as_json(), cls=DjangoJSONEncoder) + "\n"]
    else:
        lines = csv_lines(RECEIPT_HEAD, receipt_rows(receipt))
    return as_file(lines, request=request, shape=shape, name=name, **record)


def proof_document(request: HttpRequest, change: Change, proof: str) -> HttpResponse:
    """Return the proof of a sealed receipt as a file."""
    record = {"subject": Change._meta.label_lower, "scope": change.pk, "asked": 1, "tenant": change.tenant}
    return as_file([proof], request=request, shape="tlog-proof", name=f"receipt-{change.pk}", **record)


# One reconciliation.

ITEM_HEAD = (
    *("change_id", "reconciled_at", "actor", "target_id", "category"),
    *("revision_recorded", "revision_current", "qty_recorded", "qty_current", "state_recorded", "state_current"),
    *("fields_recorded", "fields_current"),
)


def fields_text(row: Any) -> str:
    """Return the fields of a row of a kind that names them; empty for others."""
    return ", ".join(f"{name} {value}" for name, value in row.values.items()) if isinstance(row, FieldValues) else ""


def item_rows(kept: Reconciliation, items: Iterable[Item]) -> Iterator[list[Any]]:
    """Yield a reconciliation row by row."""
    for item in items:
        recorded, current = item.recorded or (None, None, None), item.current or (None, None, None)
        pairs = [value for pair in zip(recorded, current, strict=True) for value in pair]
        fields = [fields_text(one) for one in (item.recorded, item.current)]
        yield [kept.change_id, kept.taken_at, kept.actor, item.id, item.category, *pairs, *fields]


def reconciliation_document(
    request: HttpRequest, kept: Reconciliation, change: Change, items: Sequence[Item], shape: str, *, is_genuine: bool
) -> HttpResponse:
    """Return a reconciliation as CSV, as ``reconcile --json`` prints it, or as a page to print."""
    record = {
        "subject": Reconciliation._meta.label_lower,
        "scope": f"{kept.pk} ({kept.change_id})",
        "asked": 1,
        "tenant": change.tenant,
    }
    if shape == "print":
        facts = [
            Fact(name=_("kind"), cell=Cell(text=change.kind)),
            Fact(name=_("tenant"), cell=Cell(text=change.tenant)),
            Fact(name=_("committed"), cell=Cell(at=change.created_at)),
            Fact(name=_("as of"), cell=Cell(at=kept.taken_at)),
            Fact(name=_("by"), cell=Cell(text=kept.actor)),
            *(Fact(name=badge.word, cell=Cell(text=getattr(kept, name))) for name, badge in CATEGORIES.items()),
            Fact(name=_("digest is"), cell=Cell(badge=GENUINE if is_genuine else NOT_GENUINE)),
        ]
        rows = [row[3:] for row in item_rows(kept, items)]
        title = _("Reconciliation of %s") % kept.change_id
        return print_page(request, title, change.digest, facts, ITEM_HEAD[3:], rows, record=record)
    name = f"reconciliation-{kept.change_id}-{kept.pk}"
    if shape == "json":
        lines: Iterable[str] = [json.dumps(as_json(kept, items)) + "\n"]
    else:
        lines = csv_lines(ITEM_HEAD, item_rows(kept, items))
    return as_file(lines, request=request, shape=shape, name=name, **record)


#: The columns of a file, whose names are for programs, as they stand on paper.
COLUMNS: dict[str, Text] = {
    "target_id": gettext_lazy("id"),
    "category": gettext_lazy("category"),
    "revision_approved": gettext_lazy("revision approved"),
    "qty_approved": gettext_lazy("qty approved"),
    "revision_before": gettext_lazy("revision before"),
    "revision_after": gettext_lazy("revision after"),
    "qty": gettext_lazy("qty"),
    "state_before": gettext_lazy("state before"),
    "state_after": gettext_lazy("state after"),
    "revision_recorded": gettext_lazy("revision recorded"),
    "revision_current": gettext_lazy("revision current"),
    "qty_recorded": gettext_lazy("qty recorded"),
    "qty_current": gettext_lazy("qty current"),
    "state_recorded": gettext_lazy("state recorded"),
    "state_current": gettext_lazy("state current"),
    "fields": gettext_lazy("fields"),
    "fields_recorded": gettext_lazy("fields recorded"),
    "fields_current": gettext_lazy("fields current"),
}


def print_page(
    request: HttpRequest,
    title: str,
    digest: str,
    facts: Sequence[Fact],
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    record: Mapping[str, Any],
    mark: Mark | None = None,
) -> HttpResponse:
    """Return a page to print, with the digest on every sheet and the mark of a receipt's seal; recorded."""
    actor = request.user.get_username()
    table = Table(head=[COLUMNS[name] for name in head], rows=[print_row(row) for row in rows])
    context = {
        "title": title,
        "digest": digest,
        "facts": facts,
        "table": table,
        "actor": actor,
        "mark": mark,
        "now": timezone.now(),
    }
    with record_action(actor=actor, name="export", **record) as doing:
        doing.note = "print"
        response = TemplateResponse(request, "receipts/pages/print.html", context).render()
        doing.done = 1
    response["Cache-Control"] = "no-store"
    return response


def print_row(row: Sequence[Any]) -> Row:
    """Return one line on paper."""
    return Row(cells=[print_cell(value) for value in row])


def print_cell(value: Any) -> Cell:
    """Return one cell on paper."""
    badge: Badge | None = CATEGORIES.get(value) if isinstance(value, str) else None
    if badge is not None:
        return Cell(badge=badge)
    return Cell(text=NONE if value is None else value, is_number=isinstance(value, int))


# The list.

LIST_HEAD = (
    *("change_id", "kind", "tenant", "targets", "actor", "created_at", "digest"),
    *("last_reconciliation", "reconciled_at", "match", "changed", "missing", "broken"),
)


def receipts_stream(
    request: HttpRequest,
    shape: str,
    *,
    page_after: Callable[[str], Page],
    look_up: Callable[[Sequence[str]], list[tuple[Any, Mapping[str, Any] | None]]],
    texts: Mapping[str, str],
) -> HttpResponse:
    """Return the list as filtered, read page by page while it is sent: memory for one page, however long it is."""
    rows = with_first_read(list_row(*one) for keys in key_pages(page_after) for one in look_up(keys))
    lines = csv_lines(LIST_HEAD, rows) if shape == "csv" else json_lines(rows)
    record = {
        "subject": Change._meta.label_lower,
        "scope": f"?{urlencode(texts)}",
        "asked": 1,
        "tenant": tenant if (tenant := texts.get("tenant", "")) and sees(request.user, tenant) else "",
    }
    return as_file(lines, request=request, shape=shape, name="receipts", **record)


def key_pages(page_after: Callable[[str], Page]) -> Iterator[list[str]]:
    """Yield the keys of the list, page by page."""
    after = ""
    while True:
        page = page_after(after)
        yield [row.pk for row in page.rows]
        if not page.next:
            return
        after = page.next


def list_row(change: Any, verdict: Mapping[str, Any] | None) -> list[Any]:
    """Return a receipt's line in the list."""
    found = verdict or dict.fromkeys(("found", "taken_at", "match", "changed", "missing", "broken"))
    head = [change.pk, change.kind, change.tenant, change.items, change.actor, change.created_at, change.digest]
    counts = [found[name] for name in ("match", "changed", "missing", "broken")]
    return [*head, found["found"], found["taken_at"], *counts]


def json_lines(rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield ``{"receipts": […]}`` object by object."""
    yield '{"receipts": ['
    separator = ""
    for row in rows:
        values = dict(zip(LIST_HEAD, row, strict=True))
        yield separator + json.dumps(values, cls=DjangoJSONEncoder)
        separator = ",\n"
    yield "]}\n"
