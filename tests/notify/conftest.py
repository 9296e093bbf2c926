"""Throw-away steps, templates and settings for one test each."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from notify import rendering, steps
from notify.steps import Step


@pytest.fixture
def add_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Step]], type[Step]]:
    """Return ``register`` on an empty registry: these steps, in this order, and none after the test."""
    monkeypatch.setattr(steps, "_registered", {})
    return steps.register


@pytest.fixture
def write_template(tmp_path: Path, settings: Any) -> Iterator[Callable[[str, str], None]]:
    """Return a function that writes a template, ``mail/x.subject.txt`` or ``task/x.title.txt``, for this test."""
    engine = settings.TEMPLATES[0]
    settings.TEMPLATES = [{**engine, "DIRS": [tmp_path / "templates", *engine["DIRS"]]}]
    rendering.cached_template.cache_clear()

    def write(name: str, text: str) -> None:
        path = tmp_path / "templates" / "notify" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    yield write
    rendering.cached_template.cache_clear()


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Return a function that sets engine settings for this test."""

    def set_values(**values: Any) -> None:
        settings.NOTIFY = {**settings.NOTIFY, **values}

    return set_values
