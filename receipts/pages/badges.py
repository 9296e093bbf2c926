"""Verdicts, categories and outcomes as word, icon and colour; addresses of the pages; pure."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote, unquote
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext, pgettext_lazy

from kwit.admin.components import Badge

from ..querysets import Found, RunOutcome

MATCHES = Badge(_("matches"), "✓", "good")
DIFFERS = Badge(_("differs"), "≠", "bad")
BROKEN = Badge(_("broken"), "⚠", "bad")
FOUND = {Found.MATCH: MATCHES, Found.DIFFERS: DIFFERS, Found.BROKEN: BROKEN}
NEVER = Badge(_("never compared"), "○", "idle")
GENUINE = Badge(_("genuine"), "✓", "good")
SEALED = Badge(_("sealed"), "✓", "good")
NOT_SEALED = Badge(_("not yet sealed"), "○", "idle")
NOT_GENUINE = Badge(_("not that of the content"), "✗", "bad")

CATEGORIES: dict[str, Badge] = {
    "match": Badge(_("match"), "✓", "good"),
    "changed": Badge(_("changed"), "≠", "bad"),
    "missing": Badge(_("missing"), "∅", "bad"),
    "broken": BROKEN,
}
RUNS: dict[str, Badge] = {
    RunOutcome.RUNNING: Badge(_("running"), "…", "busy"),
    RunOutcome.DONE: Badge(_("done"), "✓", "good"),
    RunOutcome.STOPPED: Badge(_("stopped"), "■", "warn"),
    RunOutcome.FAILED: Badge(_("failed"), "✗", "bad"),
    RunOutcome.DIED: Badge(pgettext_lazy("reconciliation", "died"), "†", "bad"),
}

#: change_ids that would be other pages' addresses, or that browsers take for a way up.
RESERVED = (".", "..", "act", "add", "export")
#: Stands before those; ``quote`` never writes it, because it writes ``_`` as ``_5F``.
MARK = "_-"


def key_of(change_id: str) -> str:
    """Return what stands for a change_id in an address."""
    key: str = quote(change_id)
    return f"{MARK}{key}" if change_id in RESERVED else key


def key_from(text: str) -> str:
    """Return the change_id that an address names."""
    change_id: str = unquote(text.removeprefix(MARK))
    return change_id


def url(model: str, page: str = "changelist", *args: Any, **query: Any) -> str:
    """Return an address of this engine's admin."""
    address = reverse(f"admin:receipts_{model}_{page}", args=args)
    return f"{address}?{urlencode(query)}" if query else address


def receipt_url(change_id: str, page: str = "change", *args: Any, **query: Any) -> str:
    """Return the address of a receipt, or of a page beside it."""
    return url("change", page, key_of(change_id), *args, **query)


def counts_text(counts: Mapping[str, int]) -> str:
    """Return how many targets differ, in words; empty when none does."""
    changed, missing, broken = counts["changed"], counts["missing"], counts["broken"]
    named = (
        ngettext("%d changed", "%d changed", changed) % changed if changed else "",
        ngettext("%d missing", "%d missing", missing) % missing if missing else "",
        ngettext("%d broken", "%d broken", broken) % broken if broken else "",
    )
    return ", ".join(text for text in named if text)
