"""The addresses of the receipts' pages, and what a test reads there."""

from typing import Any

from django.test import Client

LIST = "/admin/receipts/change/"
KEPT = "/admin/receipts/reconciliation/"
RUNS = "/admin/receipts/reconciliationrun/"
EVIL = "<script>alert(1)</script>"


def text_of(client: Client, url: str, **query: Any) -> str:
    page = client.get(url, query)
    assert page.status_code == 200, (url, page.status_code)
    return page.content.decode()


def listed(client: Client, **query: Any) -> list[str]:
    """Return the change_ids of the first page of the list."""
    return [row.cells[0].text for row in client.get(LIST, query).context["table"].rows]


def walked(client: Client, **query: Any) -> list[str]:
    """Return the change_ids of all pages of the list."""
    seen, address = [], LIST + "?" + "&".join(f"{name}={value}" for name, value in query.items())
    while address:
        page = client.get(address)
        seen += [row.cells[0].text for row in page.context["table"].rows]
        address = LIST + "?" + page.context["next_query"] if page.context["next_query"] else ""
    return seen
