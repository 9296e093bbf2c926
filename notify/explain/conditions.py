"""
Which condition of a step's query keeps a key out; reads only.

Each condition of the WHERE is asked alone whether the key passes it, so that all that fail are found, not only the
first. What the query's shape does not allow to be asked says so instead of guessing.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.core.exceptions import FieldError
from django.db.models import Exists, QuerySet
from django.db.models.expressions import Col, NegatedExpression
from django.db.models.lookups import Lookup
from django.db.models.sql import Query
from django.db.models.sql.where import WhereNode
from django.db.utils import NotSupportedError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

#: Characters of a value that are shown.
VALUE_CHARS_MAX = 60
#: By lookup; whatever is not here is named as it stands in the query.
WORDS = {
    "exact": gettext_lazy("%(name)s must be %(value)s"),
    "iexact": gettext_lazy("%(name)s must be %(value)s"),
    "gt": gettext_lazy("%(name)s must be above %(value)s"),
    "gte": gettext_lazy("%(name)s must be at least %(value)s"),
    "lt": gettext_lazy("%(name)s must be below %(value)s"),
    "lte": gettext_lazy("%(name)s must be at most %(value)s"),
}


def failing_conditions(events: QuerySet[Any, Any], keys: dict[str, int]) -> list[str] | None:
    """
    Return the conditions that the key fails, as sentences; an empty list when the row itself is not there.

    None when the query cannot be asked that way, or no condition fails alone.
    """
    try:
        if not only(events, []).filter(**keys).exists():
            return []
        children = conditions_of(events)
        failing = [child for child in children if not only(events, [child]).filter(**keys).exists()]
        return [sentence(child, actual(events, child, keys)) for child in failing] or None
    except (FieldError, TypeError, ValueError, NotSupportedError):
        return None


def conditions_of(events: QuerySet[Any, Any]) -> list[Any]:
    """Return what must be true all at once."""
    where = events.query.where
    if where.connector == "AND" and not where.negated:
        return list(where.children)
    return [where]


def only(events: QuerySet[Any, Any], conditions: list[Any]) -> QuerySet[Any, Any]:
    """Return the query with these conditions instead of its own."""
    asked = events.all()
    asked.query.where = WhereNode(conditions)
    return asked


def actual(events: QuerySet[Any, Any], condition: Any, keys: dict[str, int]) -> str:
    """Return what the column of a condition holds, where it is about one column."""
    if not isinstance(condition, Lookup) or not isinstance(condition.lhs, Col):
        return ""
    asked = only(events, []).filter(**keys).annotate(kwit_actual=condition.lhs)
    return _(", but is %(value)s") % {"value": shown(asked.values_list("kwit_actual", flat=True)[0])}


def sentence(condition: Any, is_now: str = "") -> str:
    """Describe what a condition requires and the actual value."""
    if isinstance(condition, NegatedExpression):
        return _("there must be no %(model)s like the one there is") % {"model": model_name(condition.expression)}
    if isinstance(condition, Exists):
        return _("there must be a matching %(model)s") % {"model": model_name(condition)}
    if (
        isinstance(condition, Lookup)
        and isinstance(condition.lhs, Exists | NegatedExpression)
        and condition.rhs is True
    ):
        return sentence(condition.lhs)
    if isinstance(condition, Lookup) and condition.lookup_name == "in" and isinstance(condition.rhs, Query):
        return _("there must be a matching %(model)s") % {"model": condition.rhs.get_meta().verbose_name}
    if isinstance(condition, WhereNode):
        words = {"AND": _(" and "), "OR": _(" or ")}
        inner = words.get(condition.connector, f" {condition.connector.lower()} ").join(pieces(condition))
        return _("not (%(conditions)s)") % {"conditions": inner} if condition.negated else inner
    if isinstance(condition, Lookup) and isinstance(condition.lhs, Col):
        field = condition.lhs.target
        name = f"{field.model._meta.verbose_name}: {field.name}"
        if condition.lookup_name == "isnull":
            if condition.rhs:
                return _("%(name)s must be empty") % {"name": name} + is_now
            return _("%(name)s must not be empty") % {"name": name}
        if not hasattr(condition.rhs, "resolve_expression"):
            text = WORDS.get(str(condition.lookup_name), _("%(name)s must satisfy %(lookup)s %(value)s"))
            values = {"name": name, "lookup": condition.lookup_name, "value": shown(condition.rhs)}
            return str(text % values) + is_now
    return _("the condition %(condition)s must hold") % {"condition": shown(str(condition))}


def pieces(node: WhereNode) -> Iterator[str]:
    """Yield the sentences of a node's children."""
    for child in node.children:
        yield sentence(child)


def model_name(expression: Any) -> str:
    """Return what the rows of a sub-query are called."""
    query = getattr(expression, "query", None)
    return str(query.get_meta().verbose_name) if isinstance(query, Query) else _("row")


def shown(value: Any) -> str:
    """Return a value for a person."""
    if value is None:
        return _("empty")
    # A member of an enumeration is shown as what is stored.
    plain = str(value) if isinstance(value, str) else value
    text = f"{plain:%Y-%m-%dT%H:%M:%S%z}" if isinstance(plain, datetime) else repr(plain)
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"
