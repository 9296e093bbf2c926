"""The diagrams of docs/architecture.md name functions that exist, and no path is long."""

import importlib
import re
from typing import Any

import pytest

from tests.crashing import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()
DIAGRAMS = re.findall(r"^## (.+?)\n.*?^```mermaid\n(.*?)^```$", PAGE, re.M | re.S)
STEP = re.compile(r'^ +([A-Z])\["([A-Za-z_.]+)<br>[^"]+"\](?: --> ([A-Z]))?$', re.M)
STEPS_MAX = 7


def find(name: str) -> Any:
    """Return what a dotted name stands for. Raises: ImportError, AttributeError."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ImportError(name)


def test_the_three_main_paths_have_a_diagram():
    assert [title for title, _ in DIAGRAMS] == ["A pass", "A delivery", "A change"]


@pytest.mark.parametrize(("title", "diagram"), DIAGRAMS, ids=[title for title, _ in DIAGRAMS])
def test_each_step_of_a_path_is_a_function_that_exists(title, diagram):
    steps = STEP.findall(diagram)

    assert len(steps) == len(diagram.splitlines()) - 1, "a line that is no step"
    assert [following for _, _, following in steps[:-1]] == [letter for letter, _, _ in steps[1:]]
    assert 1 <= len(steps) <= STEPS_MAX
    assert all(callable(find(name)) for _, name, _ in steps)


def test_a_function_that_is_gone_would_be_found():
    with pytest.raises(AttributeError):
        find("notify.passes.runner.run_everything")
