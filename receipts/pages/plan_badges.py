"""States and problems of plans as word, icon and colour."""

from collections.abc import Iterable

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from kwit.admin.components import Badge, Text

from ..change_types import each_kind
from ..errors import Words
from ..querysets import PlanState

STATES: dict[str, Badge] = {
    PlanState.DRAFT: Badge(pgettext_lazy("plan", "draft"), "✎", "idle"),
    PlanState.APPROVED: Badge(pgettext_lazy("plan", "approved"), "☑", "busy"),
    PlanState.APPLIED: Badge(pgettext_lazy("plan", "applied"), "✓", "good"),
    PlanState.REFUSED: Badge(pgettext_lazy("plan", "refused"), "✗", "bad"),
    PlanState.REJECTED: Badge(pgettext_lazy("plan", "rejected"), "⊘", "bad"),
    PlanState.WITHDRAWN: Badge(pgettext_lazy("plan", "withdrawn"), "↩", "idle"),
    PlanState.EXPIRED: Badge(pgettext_lazy("plan", "expired"), "⌛", "idle"),
}
AS_APPROVED = Badge(gettext_lazy("as approved"), "✓", "good")
PROBLEMS: dict[str, Text] = {
    "missing": gettext_lazy("missing"),
    "revision_differs": gettext_lazy("revision differs"),
    "qty_differs": gettext_lazy("quantity differs"),
    "revision_impossible": gettext_lazy("its revision is none that a plan can have"),
    "qty_impossible": gettext_lazy("its quantity is none that a plan can have"),
    "change_id_reused": gettext_lazy("the change id was used for another change"),
    "stale": gettext_lazy("the rows are not as approved"),
}


def in_words(said: str) -> str:
    """Return a message of this engine in the reader's language; what is none of them stays as it is."""
    if not isinstance(said, Words):
        return said
    text: str = _(said.text)
    return text % said.values if said.values else text


def problem_word(problem: str) -> Text:
    """Return a problem in words; ``not_<state>`` is a host project's own."""
    if problem in PROBLEMS:
        return PROBLEMS[problem]
    if problem.endswith("_differs"):
        return _("%s differs") % problem.removesuffix("_differs")
    return _("not %s") % problem.removeprefix("not_") if problem.startswith("not_") else problem


def problem_badge(problem: str) -> Badge:
    """Return how a target stands."""
    return Badge(problem_word(problem), "✗", "bad") if problem else AS_APPROVED


def states() -> Iterable[tuple[str, Text]]:
    """Return the states as choices."""
    return [(name, badge.word) for name, badge in STATES.items()]


def kinds() -> Iterable[tuple[str, Text]]:
    """Return the kinds of change of this site, as choices."""
    return [(kind.name, kind.name) for kind in each_kind()]
