"""The garbage collector put off: what a pass writes is the same without it, and the collector is left as it was."""

import contextlib
import gc
from typing import Any

import pytest

from notify.models import Control, MailQueue
from notify.passes import writer
from notify.passes.gc_pause import gc_paused
from notify.passes.runner import run_pass
from tests.factories import NOW, make_contact
from tests.notify.samples import make_comments

pytestmark = pytest.mark.django_db(transaction=True)


def written(monkeypatch: pytest.MonkeyPatch, pause: Any) -> list[Any]:
    MailQueue.objects.all().delete()
    Control.objects.all().delete()
    monkeypatch.setattr(writer, "gc_paused", pause)
    run_pass(now=NOW, is_full=True)
    return list(MailQueue.objects.order_by("control__key2").values_list("control__key2", "subject", "payload", "state"))


def test_a_pass_writes_the_same_with_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        make_comments(1, recipient=make_contact())

    plain = written(monkeypatch, contextlib.nullcontext)

    assert len(plain) == 5
    assert written(monkeypatch, gc_paused) == plain


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was_also_after_an_error(enabled: bool) -> None:
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with contextlib.suppress(ZeroDivisionError), gc_paused():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
