"""The receipts on the dashboard: those of the day, what differs, the oldest never compared, and for whom."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tests.factories import NOW
from tests.receipts.kept import ALL, WORK, keep, make_person, make_receipt
from tests.receipts.pages import LIST, listed, text_of

pytestmark = pytest.mark.django_db


def panel(client: Client) -> dict[str, str]:
    """Return the receipts' tiles by name."""
    found = next(one for one in client.get("/admin/").context["panels"] if one["name"] == "receipts")
    return {str(tile.name): (tile.value, tile.url) for tile in found["panel"]["tiles"]}


def test_the_dashboard_shows_the_receipts_of_the_day_and_what_differs(root: Client) -> None:
    now = timezone.now()
    make_receipt("OLD", ids=[999], at=now - timedelta(days=9))
    make_receipt("NEW", ids=[999], at=now)
    make_receipt("MIDDLE", ids=[999], at=now - timedelta(days=3))
    keep("NEW")

    tiles, page = panel(root), text_of(root, "/admin/")

    assert tiles["receipts today"][0] == "1"
    assert listed(
        root, since=tiles["receipts today"][1].split("since=")[1].replace("%3A", ":").replace("%2B", "+")
    ) == ["NEW"]
    assert tiles["differ from their rows"] == ("1", f"{LIST}?differs=1")
    assert tiles["oldest never compared"][1] == f"{LIST}OLD/change/"
    verdict = page[page.index("kwit-status") : page.index("kwit-panel")]
    assert "The rows of 1 receipt are not as it says." in verdict
    assert f"{LIST}?differs=1" in verdict
    assert "has not been compared with its rows for 1\xa0week" in verdict


def test_the_oldest_never_compared_is_found_at_either_end(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receipts.pages.dashboard.LOOKED_AT", 2)
    for number in range(6):
        make_receipt(f"CHG-{number}", ids=[999], at=NOW + timedelta(days=number))
        if number != 5:
            keep(f"CHG-{number}")

    assert panel(root)["oldest never compared"][1] == f"{LIST}CHG-5/change/"


def test_the_dashboard_counts_only_the_readers_tenants(ann: Client) -> None:
    make_receipt("CHG-Z", tenant="zeta", ids=[999], at=timezone.now())
    keep("CHG-Z")

    tiles = panel(ann)

    assert (tiles["receipts today"][0], tiles["differ from their rows"][0]) == ("0", "0")
    assert "oldest never compared" not in tiles


def test_a_dashboard_for_who_may_not_see_receipts_has_none(client: Client) -> None:
    client.force_login(make_person("victor", "notify.view_runlog"))

    assert "kwit-panel-receipts" not in text_of(client, "/admin/")
    client.force_login(make_person("wanda", *WORK, ALL))
    assert "kwit-panel-receipts" in text_of(client, "/admin/")
