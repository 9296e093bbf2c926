"""The base of this engine's pages: rows of the reader's tenants only, each tenant one range of an index."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest

from desk.admins import WindowAdmin
from desk.filters import INT64_MAX, read
from desk.tenants import tenants_of, within

#: Tenants whose rows are read apart and then merged; a reader of more gets one query over all of them.
PARTS_MAX = 20


class TenantAdmin(WindowAdmin):
    """Rows that have a ``tenant``; a foreign row is none."""

    #: Answers to these filters leave so few rows that parts are not needed.
    narrow: ClassVar[frozenset[str]] = frozenset({"tenant", "change_id"})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that the reader may see."""
        return within(super().get_queryset(request), request.user)

    def parts_of(self, request: HttpRequest, rows: QuerySet[Any]) -> Sequence[QuerySet[Any]]:
        """Return one part per tenant: no index has the rows of several tenants in the order of time."""
        tenants = tenants_of(request.user)
        if (
            tenants is None
            or not 1 < len(tenants) <= PARTS_MAX
            or self.narrow & set(read(self.filters, request.GET).values)
        ):
            return [rows]
        return [rows.filter(tenant=tenant) for tenant in sorted(tenants)]


def place_of(text: str) -> int | None:
    """Return the id after which a page begins; None for the first page, also when the text is no id."""
    is_id = text.isascii() and text.isdigit() and len(text) <= 19
    return int(text) if is_id and int(text) <= INT64_MAX else None
