"""Reconcile all: one run at a time, in a process of its own, watched through its row, and dead when it is silent."""

import os
import signal
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from kwit.models import Action
from receipts import change_types as kinds
from receipts import runs
from receipts.models import Change, Reconciliation, ReconciliationRun, Verdict
from receipts.querysets import RunOutcome
from receipts.reconcile import reconcile, record_reconciliation
from receipts.runs import DIED_AFTER, ask_for_run, carry_out, scope_of
from tests.crashing import own_database_url
from tests.factories import make_line
from tests.racing import background, open_transaction, race, until
from tests.receipts.kept import ALL, WORK, make_person, make_receipt

pytestmark = pytest.mark.django_db
RUNS = "/admin/receipts/reconciliationrun/"
START = f"{RUNS}start/"


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(make_person("root", *WORK, ALL))
    return client


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Keep the commands that would be started: what the process does is tested apart."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr("receipts.pages.runs.start_command", lambda *arguments: found.append(arguments))
    return found


def silence(run: ReconciliationRun) -> None:
    """Let a run not have been heard of for as long as makes it dead."""
    run.refresh_from_db()
    long_ago = run.beat_at - DIED_AFTER - timedelta(seconds=1)
    ReconciliationRun.objects.filter(pk=run.pk).update(beat_at=long_ago)


def make_receipts(number: int) -> None:
    """Make so many receipts of one row each, of which every other one differs."""
    for place in range(number):
        line = make_line(state="cancelled", revision=5)
        make_receipt(f"CHG-{place:03}", ids=[line.pk if place % 2 else 999_000 + place])


def as_told(run: ReconciliationRun) -> tuple[Any, ...]:
    return run.outcome, run.done, run.total, run.differing, run.undeclared


# What a run does.


def test_a_run_compares_every_receipt_and_keeps_each_result() -> None:
    make_receipts(5)
    run, is_new = ask_for_run(tenants=None, actor="ann")

    ended = carry_out(run.pk)

    assert is_new
    assert as_told(ended) == ("done", 5, 5, 3, 0)
    assert ended.ended_at is not None
    assert (ended.pid, ended.actor) == (os.getpid(), "ann")
    assert Reconciliation.objects.filter(actor="ann").count() == 5
    assert Verdict.objects.filter(found="differs").count() == 3


def test_a_run_of_some_tenants_leaves_all_others_alone() -> None:
    make_receipt("A")
    make_receipt("Z", tenant="zeta")
    run, _ = ask_for_run(tenants={"acme", "empty"}, actor="ann")

    assert as_told(carry_out(run.pk)) == ("done", 1, 1, 1, 0)
    assert [kept.change_id for kept in Reconciliation.objects.all()] == ["A"]


def test_a_kind_that_nobody_declares_is_counted_and_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    make_receipt("A", kind="gone")
    make_receipt("B")
    run, _ = ask_for_run(tenants=None, actor="ann")

    assert as_told(carry_out(run.pk)) == ("done", 2, 2, 1, 1)
    assert "gone" not in dict(kinds._registered)


def test_asked_to_stop_it_finishes_the_receipt_in_hand() -> None:
    make_receipts(5)
    run, _ = ask_for_run(tenants=None, actor="ann")
    answers = iter([False, False, True])

    ended = carry_out(run.pk, is_stopping=lambda: next(answers))

    assert as_told(ended) == ("stopped", 2, 5, 1, 0)
    assert Reconciliation.objects.count() == 2


def test_its_row_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    make_receipts(4)
    run, _ = ask_for_run(tenants=None, actor="ann")
    seen, time = [], iter(range(0, 100, 2))
    record = runs.record_reconciliation

    def watching(*args: Any, **kwargs: Any) -> Any:
        seen.append(ReconciliationRun.objects.get().done)
        return record(*args, **kwargs)

    monkeypatch.setattr(runs, "record_reconciliation", watching)
    carry_out(run.pk, clock=lambda: float(next(time)))

    assert seen == [0, 1, 2, 3]


def test_one_whose_row_was_closed_meanwhile_stops_and_leaves_it_closed() -> None:
    make_receipts(4)
    run, _ = ask_for_run(tenants=None, actor="ann")
    time = iter(range(0, 100, 2))

    def bury_then_go_on() -> bool:
        row = ReconciliationRun.objects.get()
        ReconciliationRun.objects.try_close_dead(row.pk, beat_at=row.beat_at)
        return False

    ended = carry_out(run.pk, is_stopping=bury_then_go_on, clock=lambda: float(next(time)))

    assert ended.outcome == "died"
    assert Reconciliation.objects.count() == 1


def test_an_error_closes_the_run_as_failed_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    make_receipts(2)
    run, _ = ask_for_run(tenants=None, actor="ann")

    def breaking(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("bo\x00om")

    monkeypatch.setattr(runs, "record_reconciliation", breaking)
    with pytest.raises(RuntimeError):
        carry_out(run.pk)

    failed = ReconciliationRun.objects.get()
    assert (failed.outcome, failed.error) == ("failed", "RuntimeError: boom")


def test_a_run_is_carried_out_once() -> None:
    run, _ = ask_for_run(tenants=None, actor="ann")
    carry_out(run.pk)

    for pk in (run.pk, run.pk + 1):
        with pytest.raises(LookupError):
            carry_out(pk)
        with pytest.raises(CommandError):
            call_command("reconcile", "--all", "--run", str(pk))


def test_the_command_answers_with_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    make_receipts(2)
    run, _ = ask_for_run(tenants=None, actor="ann")

    with pytest.raises(CommandError) as error:
        call_command("reconcile", "--all", "--json", "--run", str(run.pk))

    assert error.value.returncode == 5
    assert f'{{"run": {run.pk}, "done": 2, "total": 2, "differing": 1, "undeclared": 0, "outcome": "done"}}' in (
        capsys.readouterr().out
    )
    with pytest.raises(CommandError, match="--run goes with --all"):
        call_command("reconcile", "CHG-000", "--run", "1")


# One at a time.


def test_a_second_one_is_shown_the_first_and_scopes_do_not_meet() -> None:
    first, _ = ask_for_run(tenants=None, actor="ann")

    second, is_new = ask_for_run(tenants=None, actor="bob")
    third, is_other = ask_for_run(tenants={"acme"}, actor="bob")

    assert (second.pk, is_new, second.actor) == (first.pk, False, "ann")
    assert (is_other, third.pk == first.pk) == (True, False)
    assert scope_of(["b", "a"]) == scope_of({"a", "b"}) != scope_of(["a,b"])


@pytest.mark.django_db(transaction=True)
def test_of_many_who_press_at_once_one_starts_it() -> None:
    outcomes = race(6, lambda number: ask_for_run(tenants=None, actor=f"p{number}"))

    assert [is_new for _, is_new in outcomes].count(True) == 1
    assert len({run.pk for run, _ in outcomes}) == 1
    assert ReconciliationRun.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_who_looked_before_the_other_committed_is_shown_the_other() -> None:
    """The positive control: whoever only looks first sees none, and would start a second one."""
    with open_transaction(lambda: ask_for_run(tenants=None, actor="ann")[0].pk) as first:
        assert not ReconciliationRun.objects.filter(outcome=RunOutcome.RUNNING).exists()
        second = background(lambda: ask_for_run(tenants=None, actor="bob"))

    run, is_new = second.end()
    assert (run.pk, is_new) == (first, False)


def test_a_dead_run_is_closed_by_who_asks_next_and_one_that_beats_is_not() -> None:
    dead, _ = ask_for_run(tenants=None, actor="ann")
    silence(dead)

    renewed, is_new = ask_for_run(tenants=None, actor="bob")

    dead.refresh_from_db()
    assert (is_new, dead.outcome) == (True, "died")
    assert renewed.pk != dead.pk
    beat_at = renewed.beat_at - timedelta(seconds=1)
    assert not ReconciliationRun.objects.try_close_dead(renewed.pk, beat_at=beat_at)


@pytest.mark.django_db(transaction=True)
def test_of_two_results_at_once_the_later_one_is_the_verdict() -> None:
    make_receipt("CHG-1", ids=[999])
    (result,) = reconcile(change_ids=["CHG-1"])

    kept = race(4, lambda number: record_reconciliation(result, actor=f"p{number}").pk)

    assert Verdict.objects.get().reconciliation_id == max(kept)
    assert Reconciliation.objects.count() == 4


# The pages.


def test_the_page_asks_first_and_shows_the_number(root: Client, started: list[Any]) -> None:
    make_receipts(3)

    page = root.get(START).content.decode()

    assert "Compare 3 receipts with their rows?" in page
    assert root.post(START).status_code == 200
    assert (ReconciliationRun.objects.count(), started, Action.objects.count()) == (0, [], 0)


def test_a_number_is_counted_up_to_a_bound(root: Client, monkeypatch: pytest.MonkeyPatch, started: list[Any]) -> None:
    monkeypatch.setattr("receipts.pages.runs.COUNT_MAX", 2)
    make_receipts(4)

    assert "Compare more than 2 receipts with their rows?" in root.get(START).content.decode()


def test_confirmed_it_is_started_once_recorded_and_a_second_press_leads_to_it(root: Client, started: list[Any]) -> None:
    make_receipts(1)

    first, second = root.post(START, {"confirmed": "1"}), root.post(START, {"confirmed": "1"}, follow=True)

    run = ReconciliationRun.objects.get()
    assert first.url == second.redirect_chain[0][0] == f"{RUNS}{run.pk}/change/"
    assert "under way already, started by root" in second.content.decode()
    assert started == [("reconcile", "--all", "--json", "--run", str(run.pk), "--database", "default")]
    action = Action.objects.get()
    assert (action.name, action.scope, action.outcome, action.tenant) == ("reconcile_all", str(run.pk), "done", "")


def test_a_member_starts_one_over_his_own_tenants(client: Client, started: list[Any]) -> None:
    client.force_login(make_person("bob", *WORK, tenants=["zeta", "acme"]))
    make_receipt("A")
    make_receipt("O", tenant="other")
    ask_for_run(tenants=None, actor="root")

    page = client.get(START).content.decode()
    client.post(START, {"confirmed": "1"})

    assert "Compare 1 receipt with its rows?" in page
    assert "under way" not in page
    mine = ReconciliationRun.objects.latest("pk")
    assert mine.tenants == ["acme", "zeta"]
    assert [row.cells[1].text for row in client.get(RUNS).context["table"].rows] == ["bob"]
    assert client.get(f"{RUNS}{mine.pk}/change/").status_code == 200


def test_a_run_under_way_says_how_far_and_loads_itself_anew(root: Client) -> None:
    run, _ = ask_for_run(tenants=None, actor="ann")
    waiting = root.get(f"{RUNS}{run.pk}/change/").content.decode()
    ReconciliationRun.objects.try_begin(run.pk, host="app-1", pid=7, total=40)
    ReconciliationRun.objects.try_beat(run.pk, done=10, differing=2, undeclared=1)

    page = root.get(f"{RUNS}{run.pk}/change/").content.decode()

    assert "starting" in waiting
    assert 'http-equiv="refresh" content="2"' in page
    assert "…</span> running" in page
    for text in (">10<", ">40<", 'width="25.0"', "app-1 · 7", ">ann<", "of a kind no longer declared"):
        assert text.lower() in page.lower(), text


def test_a_silent_run_is_shown_as_died_with_its_last_sign_of_life(root: Client, started: list[Any]) -> None:
    run, _ = ask_for_run(tenants=None, actor="ann")
    silence(run)

    page = root.get(f"{RUNS}{run.pk}/change/").content.decode()

    assert "†</span> died" in page
    assert "http-equiv" not in page
    assert "has not been heard of" in page
    assert "†</span> died" in root.get(RUNS).content.decode()
    root.post(START, {"confirmed": "1"})
    assert len(started) == 1


def test_a_process_that_cannot_be_started_is_a_failed_run(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    make_receipts(1)
    monkeypatch.setattr("sys.executable", "/nowhere/python")

    page = root.post(START, {"confirmed": "1"}, follow=True).content.decode()

    assert "no process could be started" in page
    assert (ReconciliationRun.objects.get().outcome, Action.objects.get().outcome) == ("failed", "failed")


# The process.


@pytest.mark.django_db(transaction=True)
def test_pressed_it_runs_in_a_process_of_its_own_to_its_end(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", own_database_url())
    make_receipts(3)

    address = root.post(START, {"confirmed": "1"}).url

    run = until(lambda: ReconciliationRun.objects.exclude(outcome="running").first(), timeout_s=60)
    assert as_told(run) == ("done", 3, 3, 2, 0)
    assert run.pid != os.getpid()
    assert "http-equiv" not in root.get(address).content.decode()
    assert len(root.get("/admin/receipts/change/?differs=1").context["table"].rows) == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_process_that_is_ended_half_way(root: Client, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """SIGTERM closes it as stopped; SIGKILL leaves it silent, and what it had compared is kept."""
    monkeypatch.setenv("DATABASE_URL", own_database_url())
    many = 600  # so many that it cannot end before the signal comes
    Change.objects.bulk_create(
        Change(change_id=f"CHG-{place}", kind="cancel", tenant="acme", targets=[], digest="") for place in range(many)
    )
    root.post(START, {"confirmed": "1"})
    run = until(lambda: ReconciliationRun.objects.filter(pid__isnull=False).first(), timeout_s=60)
    until(lambda: Reconciliation.objects.exists())

    os.kill(run.pid, getattr(signal, name))

    if name == "SIGTERM":
        until(lambda: ReconciliationRun.objects.get().outcome == "stopped")
        assert 0 < ReconciliationRun.objects.get().done < many
        return
    until(lambda: not is_running(run.pid))
    assert ReconciliationRun.objects.get().outcome == "running"
    silence(run)
    assert "†</span> died" in root.get(f"{RUNS}{run.pk}/change/").content.decode()
    assert 0 < Reconciliation.objects.count() < many


def is_running(pid: int) -> bool:
    """Whether there is such a process; ours are taken note of by the thread that has started them."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
