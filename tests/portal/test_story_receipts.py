"""The receipts' part of the demo."""

import pytest

from portal.models import OrderLine
from portal.story_receipts import play_receipts
from receipts.api import reconcile
from receipts.models import Change

pytestmark = pytest.mark.django_db


def test_the_story_is_played_on_real_rows():
    said = []

    play_receipts(said.append, using="default")

    text = "\n".join(said)
    assert "CHG-1: applied, 2 targets" in text
    assert "CHG-1: already applied, 2 targets" in text
    assert "(exit 3)" in text
    assert "still pending" in text
    assert "CHG-1: 1 match, 1 changed, 0 missing" in text
    assert "CHG-1-LAST: 0 match, 0 changed, 1 missing" in text
    assert sorted(Change.objects.values_list("pk", flat=True)) == ["CHG-1", "CHG-1-LAST"]
    counts = [(one.match, one.changed, one.missing) for one in reconcile()]
    assert counts == [(1, 1, 0), (0, 0, 1)]
    assert OrderLine.objects.filter(state="pending").count() == 1
