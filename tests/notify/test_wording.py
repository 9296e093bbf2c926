"""What the engine itself writes is recognised, so that nobody reads English on a page in another language."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS
from django.utils import translation

from notify.dialects.base import BUSY, LockAnswer
from notify.explain.messages import holder_of, logged, problem_of
from notify.models import MailQueue, RunLog
from notify.passes.lock import describe_holder
from notify.passes.runner import run_pass
from tests.factories import make_comment, make_contact, make_line, make_order
from tests.mails import log
from tests.notify.samples import Remark, make_comments
from tests.notify.test_events import Repeating

pytestmark = pytest.mark.django_db(transaction=True)


def unsaid(texts: list[str], say: Any) -> list[str]:
    """Return the parts of these texts that Polish and Japanese pages would show as they are."""
    parts = {part for text in texts for part in text.split("; ")}
    found = set()
    for language in ("pl", "ja"):
        with translation.override(language):
            found |= {part for part in parts if say(part) == part}
    return sorted(found)


def logged_errors() -> list[str]:
    return list(RunLog.objects.exclude(error=None).values_list("error", flat=True))


def test_what_passes_log_is_said_in_each_language(configure: Any) -> None:
    configure(BREAKER=2)
    now = datetime.now(UTC)
    for _ in range(3):
        make_line(order=make_order(registered_at=now))
    make_comment(recipient=make_contact(email=""), created_at=now)
    log(started_at=now - timedelta(minutes=5), outcome="running", ended_at=None, ms=None)

    run_pass()
    run_pass(is_stopping=lambda: True)

    errors = logged_errors()
    for word in ("died", "has warnings", "blocked", "circuit breaker", "stopped on request"):
        assert any(word in error for error in errors), (word, errors)
    assert unsaid(errors, logged) == []
    problems = list(MailQueue.objects.filter(state="blocked").values_list("problem", flat=True))
    assert problems
    assert unsaid(problems, problem_of) == []


def test_that_a_step_failed_is_said_in_each_language_and_its_own_words_stay(add_step: Any) -> None:
    class Failing(Remark):
        def candidates(self, scope: Any, **kwargs: Any) -> Any:
            raise RuntimeError("no such view")

    add_step(Failing)

    run_pass()

    assert "step remark failed" in logged_errors()
    assert [text for text in unsaid(logged_errors(), logged) if "no such view" not in text] == []


def test_a_repeated_key_and_a_stop_within_a_step_are_said_in_each_language(add_step: Any, configure: Any) -> None:
    add_step(Repeating)
    configure(CHUNK_ROWS=1)
    make_comments(2, line=make_line())
    run_pass(is_full=True)
    for _ in range(2):
        make_comments(1, line=make_line())
    run_pass(is_full=True, is_stopping=lambda: MailQueue.objects.count() > 1)

    errors = logged_errors()
    for word in ("more than once", "stopped on request after"):
        assert any(word in error for error in errors), (word, errors)
    assert unsaid(errors, logged) == []


def test_who_holds_the_lock_is_said_in_each_language() -> None:
    nobody = describe_holder(LockAnswer(BUSY), using=DEFAULT_DB_ALIAS)
    now = datetime.now(UTC)
    whole = log(started_at=now, outcome="running", ended_at=None, ms=None, host="web 1", pid=4711)
    between = describe_holder(LockAnswer(BUSY), using=DEFAULT_DB_ALIAS)
    log("comment", pass_id=whole.pass_id, started_at=now, outcome="running", ended_at=None, ms=None)
    within = describe_holder(LockAnswer(BUSY), using=DEFAULT_DB_ALIAS)

    assert len({nobody, between, within}) == 3
    assert unsaid([nobody, between, within], holder_of) == []


def test_control_what_others_say_stays_as_it_is() -> None:
    assert unsaid(["no such view"], logged) == ["no such view"]
