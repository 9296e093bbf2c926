"""Everything in any order, against a model: apply, repeat, edit, delete, reinsert, kill, reconcile."""

import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from portal.models import OrderLine
from receipts.api import Conflict, Target, cancel_many, inspect_change, reconcile
from tests.crashing import run_fork
from tests.factories import make_order

LINES = 3
_examples = itertools.count(1)
picks = st.lists(st.integers(0, LINES - 1), min_size=1, max_size=LINES, unique=True)


class Receipts(RuleBasedStateMachine):
    """A model of three rows and of the changes made to them."""

    def __init__(self):
        super().__init__()
        self.example, self.numbers = next(_examples), itertools.count(1)
        self.order = make_order()
        self.ids = [
            OrderLine.objects.create(
                order=self.order, tenant="acme", qty=10, revision=0, state="pending", handled=False
            ).pk
            for _ in range(LINES)
        ]
        #: id -> (revision, qty, state), or None for a row that is gone.
        self.rows = dict.fromkeys(self.ids, (0, 10, "pending"))
        #: change_id -> (targets, recorded rows)
        self.receipts = {}

    def approve(self, picked, *, wrong=0):
        """Return targets that approve rows as they are (or as they are not)."""
        targets = []
        for at in picked:
            revision, qty, _ = self.rows[self.ids[at]] or (0, 10, "pending")
            targets.append(Target(self.ids[at], revision + wrong, qty))
        return targets

    def may_apply(self, targets):
        """Whether the model allows this change."""
        return all(self.rows[one.id] == (one.revision, one.qty, "pending") for one in targets)

    def record(self, change_id, targets):
        """Apply it to the model."""
        for one in targets:
            self.rows[one.id] = (one.revision + 1, one.qty, "cancelled")
        self.receipts[change_id] = (targets, {one.id: self.rows[one.id] for one in targets})

    def new_id(self):
        """Return a change_id that nobody has used."""
        return f"CHG-{self.example}-{next(self.numbers)}"

    @rule(picked=picks, wrong=st.sampled_from([0, 0, 0, 1]))
    def apply(self, picked, wrong):
        change_id, targets = self.new_id(), self.approve(picked, wrong=wrong)
        if self.may_apply(targets):
            assert cancel_many(change_id=change_id, tenant="acme", targets=targets) is True
            self.record(change_id, targets)
        else:
            with pytest.raises(Conflict) as caught:
                cancel_many(change_id=change_id, tenant="acme", targets=targets)
            failing = sorted(one.id for one in targets if not self.may_apply([one]))
            assert [problem.id for problem in caught.value.problems] == failing

    @rule(picked=picks, data=st.data())
    def die(self, picked, data):
        change_id, targets = self.new_id(), self.approve(picked)
        kill = f"{data.draw(st.sampled_from(['before', 'after']))}:{data.draw(st.integers(1, 4))}"
        run_fork(lambda: cancel_many(change_id=change_id, tenant="acme", targets=targets), kill=kill)
        try:
            now = cancel_many(change_id=change_id, tenant="acme", targets=targets)
        except Conflict:
            assert not self.may_apply(targets)
        else:
            assert self.may_apply(targets)
            assert now in (True, False)
            self.record(change_id, targets)

    @rule(data=st.data())
    def repeat(self, data):
        if self.receipts:
            change_id = data.draw(st.sampled_from(sorted(self.receipts)))
            targets, _ = self.receipts[change_id]
            shuffled = data.draw(st.permutations(targets))
            assert cancel_many(change_id=change_id, tenant="acme", targets=shuffled) is False

    @rule(data=st.data(), tenant=st.sampled_from(["acme", "other"]))
    def reuse(self, data, tenant):
        if self.receipts:
            change_id = data.draw(st.sampled_from(sorted(self.receipts)))
            other = [one._replace(qty=one.qty + 1) for one in self.receipts[change_id][0]]
            with pytest.raises(Conflict) as caught:
                cancel_many(change_id=change_id, tenant=tenant, targets=other)
            assert caught.value.conflict == "change_id_reused"

    @rule(at=st.integers(0, LINES - 1), qty=st.integers(0, 20), state=st.sampled_from(["pending", "accepted"]))
    def edit(self, at, qty, state):
        row = self.rows[self.ids[at]]
        if row:
            self.rows[self.ids[at]] = (row[0] + 1, qty, state)
            OrderLine.objects.filter(pk=self.ids[at]).update(revision=row[0] + 1, qty=qty, state=state)

    @rule(at=st.integers(0, LINES - 1))
    def delete(self, at):
        OrderLine.objects.filter(pk=self.ids[at]).delete()
        self.rows[self.ids[at]] = None

    @rule(at=st.integers(0, LINES - 1))
    def reinsert(self, at):
        if self.rows[self.ids[at]] is None:
            self.rows[self.ids[at]] = (0, 10, "pending")
            OrderLine.objects.create(
                pk=self.ids[at], order=self.order, tenant="acme", qty=10, revision=0, state="pending", handled=False
            )

    @invariant()
    def rows_are_as_the_model_says(self):
        found = OrderLine.objects.filter(pk__in=self.ids).values_list("pk", "revision", "qty", "state")
        assert {pk: tuple(row) for pk, *row in found} == {pk: row for pk, row in self.rows.items() if row}

    @rule()
    def receipts_are_as_committed_and_reconcile(self):
        for change_id, (targets, recorded) in self.receipts.items():
            receipt = inspect_change(change_id=change_id)
            assert receipt.is_genuine
            assert receipt.targets == tuple(sorted(targets))
            kept = {row.target_id: (row.revision_after, row.qty, row.state_after) for row in receipt.audit}
            assert kept == recorded
            (result,) = reconcile(change_ids=[change_id])
            assert {item.id: item.category for item in result.items} == {
                pk: "missing" if self.rows[pk] is None else "match" if self.rows[pk] == row else "changed"
                for pk, row in recorded.items()
            }

    def teardown(self):
        self.receipts_are_as_committed_and_reconcile()


@pytest.mark.django_db(transaction=True)
def test_any_order_of_events_leaves_what_the_model_says():
    run_state_machine_as_test(
        Receipts,
        settings=settings(
            max_examples=25, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
