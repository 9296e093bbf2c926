"""Subjects and titles: the one-line templates of a step, rendered for thousands of events in one language."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..models import SUBJECT_UNITS_MAX
from ..text import one_line, shorten
from .loading import compile_or_load
from .patterns import Render, render_of


class Lines:
    """The one-line templates of one language and one chunk; make a new one when either changes."""

    def __init__(self) -> None:
        self.renders: dict[str, Render] = {}

    def render(self, name: str, values: Mapping[str, Any], *, source: str = "") -> str:
        """Render a template of one line in the active language, shortened at a whole character."""
        return self.render_all(name, [values], source=source)[0]

    def render_all(self, name: str, several: Sequence[Mapping[str, Any]], *, source: str = "") -> list[str]:
        """Render a template, or what a person wrote in its place, for each of several values of the same names."""
        if name not in self.renders and several:
            self.renders[name] = render_of(compile_or_load(source, name), several[0])
        return [shorten(one_line(self.renders[name](values)), SUBJECT_UNITS_MAX) for values in several]
