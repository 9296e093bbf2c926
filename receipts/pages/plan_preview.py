"""A plan's targets beside their rows: as they are now, or as they were when the plan was refused."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from kwit.admin.components import NONE, Badge, Cell, Row, Section, Table, Text

from ..change_types import SET, get_kind
from ..errors import Problem, UnknownKind
from ..models import Change, StoredPlan
from ..plans.canonical import FieldTarget, Target, stored_targets
from ..plans.model import Plan
from ..previews import preview_change
from ..querysets import CLOSED_STATES, PlanState
from ..receipt import is_readable
from .field_tables import labels_of, plan_table
from .plan_badges import problem_badge, problem_word

#: Targets on one page; a plan may have ten thousand.
PAGE_TARGETS = 100


@dataclass(frozen=True, kw_only=True)
class Line:
    """One target; ``current`` is None when there is no such row, or when nobody looked."""

    id: int
    problem: str
    approved: Target
    current: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """All targets of a plan; ``as_of`` is None when they were not compared."""

    lines: Sequence[Line]
    as_of: datetime | None = None
    #: What concerns the plan as a whole.
    remarks: Sequence[Text] = ()

    @property
    def failing(self) -> Sequence[Line]:
        """The targets that are not as approved."""
        return [line for line in self.lines if line.problem]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One page of a sheet; ``next`` and ``previous`` are the ids after which the neighbours begin."""

    lines: Sequence[Line]
    next: int | None = None
    previous: int | None = None


def content_of(plan: StoredPlan) -> Plan | None:
    """Return what a stored plan says, None when its targets, which plain SQL may have written, are none."""
    try:
        targets = tuple(sorted(stored_targets(plan.targets), key=itemgetter(0)))
        if not all(is_readable(target) and is_of_kind(target, plan.kind) for target in targets):
            return None
        content = Plan(change_id=plan.change_id, tenant=plan.tenant, targets=targets)
        content.digest(kind=plan.kind)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return content if targets else None


def is_of_kind(target: Target, kind: str) -> bool:
    """Whether a target has the columns of a kind; also when nobody declares it any more."""
    try:
        return get_kind(kind).row_of(target) is not None
    except UnknownKind:
        return True


def sheet_of(plan: StoredPlan, content: Plan) -> Sheet:
    """Return the targets beside what is to be seen of their rows; one query for a plan that waits."""
    if plan.state == PlanState.REFUSED:
        return attempt_of(plan, content)
    if plan.state in CLOSED_STATES:
        return Sheet(lines=[Line(id=one.id, problem="", approved=one, current=None) for one in content.targets])
    try:
        found = preview_change(kind=plan.kind, tenant=plan.tenant, targets=content.targets)
    except UnknownKind:
        lines = [Line(id=one.id, problem="", approved=one, current=None) for one in content.targets]
        return Sheet(lines=lines, remarks=[_("No app declares the kind of change “%s” any more.") % plan.kind])
    lines = [line_of(row.target, row.as_problem()) for row in found.rows]
    return Sheet(lines=lines, as_of=found.as_of)


def attempt_of(plan: StoredPlan, content: Plan) -> Sheet:
    """Return the refused attempt as it was kept; a target without a problem was as approved then."""
    problems, remarks = {}, []
    for one in plan.problems if isinstance(plan.problems, list) else []:
        try:
            problems[int(one["id"])] = Problem(**one)
        except (KeyError, TypeError, ValueError):
            name = one.get("problem") if isinstance(one, dict) else None
            remarks.append(problem_word(str(name or one)))
    lines = [
        line_of(one, problems[one.id])
        if one.id in problems
        else Line(id=one.id, problem="", approved=one, current=as_approved(one))
        for one in content.targets
    ]
    return Sheet(lines=lines, as_of=plan.decided_at, remarks=remarks)


def as_approved(target: Target) -> dict[str, Any]:
    """Return what was found of a row that was as approved."""
    return {name: value for name, value in target._asdict().items() if name != "id" and not name.startswith(SET)}


def line_of(target: Target, problem: Problem) -> Line:
    """Return one target with what was found."""
    current = problem.current if isinstance(problem.current, dict) else None
    return Line(id=target.id, problem=str(problem.problem), approved=target, current=current)


def part_of(sheet: Sheet, *, only_failing: bool, after: int) -> Part:
    """Return the page of targets that begins after an id."""
    lines = list(sheet.failing if only_failing else sheet.lines)
    ids = [line.id for line in lines]
    begin = bisect_right(ids, after)
    end = begin + PAGE_TARGETS
    back = max(0, begin - PAGE_TARGETS)
    return Part(
        lines=lines[begin:end],
        next=ids[end - 1] if end < len(ids) else None,
        previous=(ids[back - 1] if back else 0) if begin else None,
    )


def table_of(sheet: Sheet, part: Part, *, kind: str, url: Callable[[int], str]) -> Table:
    """Return a page of targets, approved and current side by side, the differing cells marked."""
    labels = labels_of(kind, [line.approved for line in part.lines if line.current is not None])
    if labels or any(isinstance(line.approved, FieldTarget) for line in part.lines):
        return plan_table(part.lines, kind=kind, labels=labels, is_compared=sheet.as_of is not None, url=url)
    required = required_state(kind)
    if sheet.as_of is None:
        rows = [Row(cells=approved_cells(line, url)) for line in part.lines]
        return Table(
            head=[_("id"), _("approved revision"), _("approved quantity")], rows=rows, numbers=frozenset({0, 1, 2})
        )
    head = [
        _("id"),
        _("how it stands"),
        _("approved revision"),
        _("current revision"),
        _("approved quantity"),
        _("current quantity"),
        _("current state"),
    ]
    rows = [Row(cells=compared_cells(line, required, url)) for line in part.lines]
    return Table(head=head, rows=rows, numbers=frozenset({0, 2, 3, 4, 5}))


def required_state(kind: str) -> str | None:
    """Return the state in which a kind needs its rows; None when nobody declares it any more."""
    try:
        return get_kind(kind).required_state
    except UnknownKind:
        return None


def approved_cells(line: Line, url: Callable[[int], str]) -> list[Cell]:
    """Return what was approved of a target."""
    return [
        Cell(text=line.id, url=url(line.id), is_number=True),
        Cell(text=line.approved.revision, is_number=True),
        Cell(text=line.approved.qty, is_number=True),
    ]


def compared_cells(line: Line, required: str | None, url: Callable[[int], str]) -> list[Cell]:
    """Return a target beside its row."""
    one, revision, qty = approved_cells(line, url)
    now = line.current or {}
    state = now.get("state", required if not line.problem else None)
    return [
        one,
        Cell(badge=problem_badge(line.problem)),
        revision,
        current_cell(now.get("revision"), differs=now.get("revision") != line.approved.revision, is_number=True),
        qty,
        current_cell(now.get("qty"), differs=now.get("qty") != line.approved.qty, is_number=True),
        current_cell(state, differs=required is not None and state != required),
    ]


def current_cell(value: Any, *, differs: bool, is_number: bool = False) -> Cell:
    """Return a value of a row; one that differs is marked by icon and colour."""
    text = NONE if value is None else str(value)
    if differs:
        # The sign is a part of the word, not its icon: users of screen readers need it as well.
        return Cell(badge=Badge(f"≠ {text}", "", "bad"), is_number=is_number)
    return Cell(text=text, is_number=is_number)


def verdict_of(sheet: Sheet, plan: StoredPlan) -> list[Text]:
    """Say in sentences what the comparison found; the change id's own receipt included."""
    said: list[Text] = list(sheet.remarks)
    total, failing = len(sheet.lines), len(sheet.failing)
    if plan.state in (PlanState.DRAFT, PlanState.APPROVED) and sheet.as_of is not None:
        if failing:
            text = _("It would be refused now. Targets that are not as approved: %(failing)d of %(total)d.")
            said.append(text % {"failing": failing, "total": total})
        else:
            said.append(ngettext("%d target is as approved.", "All %d targets are as approved.", total) % total)
        said += receipt_remarks(plan)
    elif plan.state == PlanState.REFUSED:
        text = _(
            "It was refused whole, and nothing was written. Targets that were not as approved: %(failing)d of "
            "%(total)d."
        )
        said.append(text % {"failing": failing, "total": total})
    return said


def receipt_remarks(plan: StoredPlan) -> list[Text]:
    """Say what a receipt of the same change id means for a plan that waits; one query."""
    found = Change.objects.filter(pk=plan.change_id).values_list("pk", "kind", "tenant", "digest").first()
    if found is None or found[0] != plan.change_id:
        return []
    if found[1:] == (plan.kind, plan.tenant, plan.digest):
        return [_("This very change was applied before: applying the plan writes nothing.")]
    return [_("The change id was used for another change: this plan would be refused.")]


def section_of(sheet: Sheet, part: Part, *, plan: StoredPlan, only_failing: bool, url: Callable[[int], str]) -> Section:
    """Return a page of targets with its heading."""
    if sheet.as_of is None:
        title = _("Targets")
    elif plan.state == PlanState.REFUSED:
        title = _("Approved, and found when it was refused")
    else:
        title = _("Approved, and as the rows are now")
    if not part.lines:
        return Section(title=title, lines=[_("No target is to be shown here.")])
    return Section(title=title, table=table_of(sheet, part, kind=plan.kind, url=url))
