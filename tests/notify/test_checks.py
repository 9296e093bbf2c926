"""What ``manage.py check`` and the doctor say of faulty settings, steps and databases."""

from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import ERROR, INFO, WARNING, run_checks
from django.db import connection, models
from django.db.migrations.state import ModelState, StateApps
from django.db.models import F, Max, Value

from notify import steps
from notify.checks import check_steps
from notify.dialects import dialect_of
from notify.dialects.base import Weakness
from notify.models import Control, RunLog
from notify.passes.runner import run_pass
from notify.steps import FlaggedStep, Scope, Step, register
from portal.models import Comment, Order, OrderLine


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start from no steps at all."""
    monkeypatch.setattr(steps, "_registered", {})


class Sound(Step):
    """A step without a fault; each test spoils one thing."""

    kind = "sound"
    template = "comment"

    def events(self, scope: Scope) -> Any:
        return Comment.objects.values(key=F("line_id"), key2=F("pk"), event_at=F("created_at"))


def found() -> list[str]:
    # What the templates of these steps use is another file's subject (test_names).
    return [message.id for message in run_checks(tags=["notify"]) if message.id != "notify.W008"]


def test_a_sound_step_has_no_findings() -> None:
    register(Sound)

    assert found() == []


@pytest.mark.parametrize(
    ("body", "expected"), [(None, ["notify.W006"]), ("{% if %}", ["notify.W006"]), ("A sound body.", [])]
)
def test_a_mail_without_a_body_that_can_be_made_is_a_warning(
    tmp_path: Path, settings: Any, body: str | None, expected: list[str]
) -> None:
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    folder = tmp_path / "notify" / "mail"
    folder.mkdir(parents=True)
    (folder / "bare.subject.txt").write_text("A subject")
    if body is not None:
        (folder / "bare.body.txt").write_text(body)
    register(type("Bare", (Sound,), {"template": "bare"}))

    assert found() == expected


@pytest.mark.parametrize("kind", ["", "elevenchars", "pass", " blank", "new\nline", None])
def test_a_kind_that_cannot_be_stored_is_an_error(kind: Any) -> None:
    register(type("Odd", (Sound,), {"kind": kind}))

    assert found() == ["notify.E002"]


def test_a_kind_of_ten_characters_fits() -> None:
    register(type("Longest", (Sound,), {"kind": "tencharact"}))

    assert found() == []


def test_two_steps_of_one_kind_are_an_error_that_names_both() -> None:
    register(Sound)
    register(type("Twin", (Sound,), {}))

    messages = [message for message in run_checks(tags=["notify"]) if message.id == "notify.E003"]

    assert len(messages) == 2
    assert all("Sound" in message.hint and "Twin" in message.hint for message in messages)


@pytest.mark.parametrize(
    "events",
    [
        lambda self, scope: 1 / 0,
        lambda self, scope: [],
        lambda self, scope: Comment.objects.values(key=F("line_id")),
        lambda self, scope: Comment.objects.values(event_at=F("created_at")),
        lambda self, scope: Comment.objects.values(key=F("line_id"), event_at=F("created_at"))[:5],
        lambda self, scope: Comment.objects.values(key=F("line_id"), event_at=F("created_at")).union(
            Comment.objects.values(key=F("line_id"), event_at=F("created_at"))
        ),
    ],
)
def test_events_of_the_wrong_shape_are_an_error(events: Any) -> None:
    register(type("Odd", (Sound,), {"events": events}))

    assert found() == ["notify.E004"]


class Reminder(models.Model):  # noqa: DJ008
    """A business table whose time has no index."""

    at = models.DateTimeField()
    done = models.BooleanField(default=False)

    class Meta:
        app_label = "portal"
        managed = False


# Out of other tests' sight: they look at every model there is.
apps.all_models["portal"].pop("reminder")
apps.clear_cache()


@pytest.mark.parametrize(
    "events",
    [
        lambda self, scope: Reminder.objects.values(key=F("pk"), event_at=F("at")),
        lambda self, scope: Comment.objects.values(key=F("line_id")).annotate(event_at=Max("created_at")),
        lambda self, scope: Comment.objects.values(key=F("line_id"), event_at=Value(None, models.DateTimeField())),
    ],
)
def test_an_event_time_that_no_index_serves_is_an_error(events: Any) -> None:
    register(type("Slow", (Sound,), {"events": events}))

    assert found() == ["notify.E005"]


def test_an_unindexed_event_time_is_fine_for_a_step_without_window() -> None:
    events = lambda self, scope: Reminder.objects.values(key=F("pk"), event_at=F("at"))  # noqa: E731
    register(type("Whole", (Sound,), {"events": events, "is_windowed": False}))

    assert found() == []


def test_a_key_that_may_be_null_is_a_warning() -> None:
    events = lambda self, scope: Order.objects.values(key=F("buyer_id"), event_at=F("registered_at"))  # noqa: E731
    register(type("Nullable", (Sound,), {"events": events}))

    assert found() == ["notify.W003"]


def test_a_step_that_writes_nothing_is_an_error() -> None:
    register(type("Silent", (Sound,), {"template": None}))

    assert found() == ["notify.E006"]


def test_a_missing_template_is_an_error_that_names_the_file() -> None:
    register(type("Bare", (Sound,), {"template": "nosuch", "task": "neither"}))

    messages = run_checks(tags=["notify"])

    assert [message.id for message in messages] == ["notify.E007", "notify.E007"]
    assert "notify/mail/nosuch.subject.txt" in messages[0].msg
    assert "notify/task/neither.title.txt" in messages[1].msg


def test_a_flag_that_the_rows_lack_is_an_error() -> None:
    class Flagged(FlaggedStep):
        kind = "flagged"
        template = "order"
        flag_key = "nosuch"

        def events(self, scope: Scope) -> Any:
            return OrderLine.objects.values(key=F("order_id"), event_at=F("order__registered_at"))

        def flagged(self) -> Any:
            return OrderLine.objects.all()

    register(Flagged)

    assert found() == ["notify.E008"]


def test_flagged_rows_without_an_index_are_a_warning() -> None:
    class Flagged(FlaggedStep):
        kind = "flagged"
        template = "order"
        flag = "done"
        flag_key = "id"

        def events(self, scope: Scope) -> Any:
            return Reminder.objects.filter(done=False).values(key=F("pk"), event_at=F("at"))

        def flagged(self) -> Any:
            return Reminder.objects.all()

    register(Flagged)

    assert found() == ["notify.W001"]


def test_the_index_that_is_advised_names_the_field_of_a_primary_key() -> None:
    class Flagged(FlaggedStep):
        kind = "flagged"
        template = "order"
        flag = "done"
        flag_key = "pk"

        def events(self, scope: Scope) -> Any:
            return Reminder.objects.filter(done=False).values(key=F("pk"), event_at=F("at"))

        def flagged(self) -> Any:
            return Reminder.objects.all()

    register(Flagged)

    [warning] = [message for message in run_checks(tags=["notify"]) if message.id == "notify.W001"]
    assert "fields=['id']" in str(warning.hint)


@pytest.mark.parametrize("breaker", [0, -1, "5", None, 1.5])
def test_a_breaker_that_is_no_number_above_zero_is_an_error(breaker: Any) -> None:
    register(type("Odd", (Sound,), {"breaker": breaker}))

    assert found() == ["notify.E009"]


@pytest.mark.parametrize(
    "given", [{"BRAKER": 1}, {"BREAKER": 0}, {"BREAKER": True}, {"LOOKBACK": 1}, {"NOT_BEFORE": "x"}]
)
def test_a_faulty_setting_is_an_error_that_names_it(settings: Any, given: dict[str, Any]) -> None:
    settings.NOTIFY = given

    [message] = run_checks(tags=["notify"])

    assert message.id == "notify.E001"
    assert next(iter(given)) in message.msg


@pytest.mark.django_db
def test_the_doctor_finds_nothing_on_a_sound_database() -> None:
    messages = run_checks(tags=["kwit"], include_deployment_checks=True, databases=["default"])

    assert [message for message in messages if message.id.startswith("notify.") and message.level > INFO] == []


@pytest.mark.django_db
def test_each_weakness_that_the_dialect_finds_is_a_finding_as_grave_as_its_id_says(monkeypatch: Any) -> None:
    """The dialects' own are tested with their texts; here it is whether they arrive."""
    weak = [Weakness(id, "about", "to do") for id in ("notify.E023", "notify.W007", "notify.I001")]
    monkeypatch.setattr(dialect_of(connection), "weaknesses", lambda connection: weak)

    messages = run_checks(tags=["kwit"], include_deployment_checks=True, databases=["default"])

    mine = {message.id: (message.level, message.msg, message.hint) for message in messages}
    levels = {"notify.E023": ERROR, "notify.W007": WARNING, "notify.I001": INFO}
    assert {id: mine[id] for id in levels} == {id: (level, "about", "to do") for id, level in levels.items()}


@pytest.mark.django_db(transaction=True)
def test_the_doctor_misses_the_unique_constraint() -> None:
    constraint = Control._meta.constraints[0]
    state = ModelState.from_model(Control)
    state.options["constraints"] = []
    with connection.schema_editor() as editor:
        editor.remove_constraint(state.render(StateApps([], {})), constraint)
    try:
        messages = run_checks(tags=["kwit"], include_deployment_checks=True, databases=["default"])
    finally:
        with connection.schema_editor() as editor:
            editor.add_constraint(Control, constraint)

    assert [message.id for message in messages if message.id.startswith("notify.")] == ["notify.E021"]


@pytest.mark.django_db(transaction=True)
def test_a_faulty_step_fails_alone_in_a_pass() -> None:
    register(type("Bare", (Sound,), {"kind": "bare", "template": "nosuch"}))
    register(Sound)

    report = run_pass()

    assert [(step.step, step.outcome) for step in report.steps] == [("bare", "error"), ("sound", "ok")]
    assert "notify.E007" in RunLog.objects.get(step="bare").error


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["pass", "a\0b", "a\ud800", ["a"], None, "x" * 50])
def test_a_kind_that_cannot_be_stored_fails_alone_and_the_log_is_closed(kind: Any) -> None:
    """As ``pass`` it would close the row of the pass; others would raise where nobody expects it."""
    register(type("Odd", (Sound,), {"kind": kind}))
    register(Sound)

    report = run_pass()

    assert [(step.step, step.outcome) for step in report.steps] == [("?Odd", "error"), ("sound", "ok")]
    assert not RunLog.objects.running().exists()
    assert "notify.E002" in RunLog.objects.get(step="?Odd").error


def raise_it(step: Any) -> Any:
    raise RuntimeError("not today")


@pytest.mark.parametrize(
    "attributes",
    [{"template": "x" * 300}, {"flagged": raise_it, "flag_key": "id"}, {"flagged": lambda step: None}],
)
def test_a_step_that_raises_while_it_is_checked_is_a_finding(attributes: dict[str, Any]) -> None:
    register(
        type("Raising", (FlaggedStep,), {"kind": "raising", "template": "comment", "events": Sound.events} | attributes)
    )

    assert "notify.E004" in [message.id for message in check_steps(None)]
