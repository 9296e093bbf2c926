"""
Templates that people write on a page: a subset of Django's, in which nothing can be read or called but the values.

No includes and no parents, no tag or filter that is not listed here, and a dotted name reads a mapping or a list, never
an attribute or a method.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Any

from django.template import Engine, Library, Template, TemplateSyntaxError
from django.template.base import Variable, VariableDoesNotExist
from django.template.defaultfilters import register as django_filters
from django.template.defaulttags import register as django_tags

from ..templatetags.notify import register as notify_tags

#: Characters of one part of a wording.
SOURCE_CHARS_MAX = 20_000
TAGS = ("comment", "cycle", "firstof", "for", "if", "ifchanged", "now", "spaceless", "templatetag", "with")
#: Not those that make values of any size (``ljust``, ``stringformat``), trust them as HTML or read attributes.
FILTERS = (
    *("add", "capfirst", "date", "default", "default_if_none", "divisibleby", "escape", "filesizeformat", "first"),
    *(
        "floatformat",
        "join",
        "last",
        "length",
        "linebreaks",
        "linebreaksbr",
        "lower",
        "pluralize",
        "slice",
        "striptags",
    ),
    *("time", "timesince", "timeuntil", "title", "truncatechars", "truncatewords", "upper", "urlencode", "urlize"),
    *("wordcount", "yesno"),
)
#: Characters that a filter may return: ``{% with a=a|add:a %}`` in itself would otherwise double a value each time.
VALUE_CHARS_MAX = 200_000


def bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that refuses to make a value larger than what may be. Raises, when rendered: ValueError."""

    # Also copies what Django keeps on the function: whether it is safe and wants to know of escaping.
    @wraps(function)
    def filter_value(value: Any, *arguments: Any, **options: Any) -> Any:
        if name == "join" and hasattr(value, "__len__") and len(value) * len(str(arguments[0])) > VALUE_CHARS_MAX:
            raise ValueError(f"the filter {name} would make a value of more than {VALUE_CHARS_MAX} characters")
        made = function(value, *arguments, **options)
        if made is not value and hasattr(made, "__len__") and len(made) > VALUE_CHARS_MAX:
            raise ValueError(f"the filter {name} made a value of more than {VALUE_CHARS_MAX} characters")
        return made

    return filter_value


register = Library()
register.tags.update({name: django_tags.tags[name] for name in TAGS} | dict(notify_tags.tags))
register.filters.update({name: bounded(name, django_filters.filters[name]) for name in FILTERS})


class SandboxEngine(Engine):
    """Django's engine with the tags and filters of this module, and no templates of anybody else."""

    default_builtins = [__name__]


class PlainVariable(Variable):
    """A variable whose dots read mappings and lists only."""

    # As Django's has, so that one can become the other.
    __slots__ = ()

    def _resolve_lookup(self, context: Any) -> Any:
        """Return the value. Raises: VariableDoesNotExist."""
        assert isinstance(self.lookups, tuple)  # noqa: S101 - literals are resolved elsewhere
        found = context
        for name in self.lookups:
            try:
                if isinstance(found, list | tuple):
                    found = found[int(name)]
                elif found is context or isinstance(found, dict):
                    found = found[name]
                else:
                    raise KeyError(name)
            except (KeyError, ValueError, IndexError) as error:
                raise VariableDoesNotExist("%s has no value %s", (self.var, name)) from error
        return "" if callable(found) else found


@lru_cache(maxsize=1)
def engine() -> SandboxEngine:
    """Return the engine, always the same."""
    return SandboxEngine(dirs=[], app_dirs=False, loaders=[("django.template.loaders.locmem.Loader", {})])


@lru_cache(maxsize=256)
def compile_source(source: str) -> Template:
    """Return a text as a template. Raises: TemplateSyntaxError."""
    if len(source) > SOURCE_CHARS_MAX:
        raise TemplateSyntaxError(f"longer than {SOURCE_CHARS_MAX} characters")
    try:
        compiled = Template(source.replace("\r\n", "\n"), engine=engine())
        for variable in variables_in(compiled.nodelist, set()):
            variable.__class__ = PlainVariable
    except RecursionError as error:
        raise TemplateSyntaxError("nested too deeply") from error
    return compiled


def variables_in(value: Any, seen: set[int]) -> Iterator[Variable]:
    """Yield every variable of a parsed template, wherever a tag keeps it."""
    if isinstance(value, Variable):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from variables_in(inner, seen)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from variables_in(inner, seen)
    elif type(value).__module__.startswith("django.template") and id(value) not in seen:
        # Nodes, filter expressions and the conditions of {% if %}; some know each other.
        seen.add(id(value))
        names = [*getattr(value, "__slots__", ()), *getattr(value, "__dict__", ())]
        for name in names:
            if name not in ("origin", "token"):
                yield from variables_in(getattr(value, name, None), seen)
