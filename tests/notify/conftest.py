"""Throw-away steps, templates and settings for one test each, a mail server, and people who look at the pages."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from notify import steps
from notify.dialects import dialect_of
from notify.messages import loading
from notify.steps import Step
from tests.browser.story import OPERATE, VIEW, make_user
from tests.racing import race
from tests.smtp import Server, smtp_server


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
    loading.clear_cache()

    def write(name: str, text: str) -> None:
        path = tmp_path / "templates" / "notify" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    yield write
    loading.clear_cache()


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Return a function that sets engine settings for this test."""

    def set_values(**values: Any) -> None:
        settings.NOTIFY = {**settings.NOTIFY, **values}

    return set_values


@pytest.fixture
def other_session_holds_the_lock(transactional_db: None) -> Iterator[threading.Event]:
    """Hold the pass lock in a session of its own until the returned event is set, at the latest until the test ends."""
    held, release = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        dialect = dialect_of(connection)
        answer = dialect.try_lock(connection)
        assert answer.is_granted
        held.set()
        release.wait(30)
        dialect.unlock(connection, answer.token)

    thread = threading.Thread(target=race, args=(1, hold))
    thread.start()
    assert held.wait(30)
    yield release
    release.set()
    thread.join(30)


@pytest.fixture(params=["one by one", "pipelining"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Run a mail server that knows PIPELINING, and one that does not."""
    with smtp_server(extensions=("PIPELINING",) if request.param == "pipelining" else ()) as running:
        yield running


@pytest.fixture
def olga(client: Client) -> Client:
    """Sign in somebody who may do everything with mails and tasks."""
    client.force_login(make_user("olga", *OPERATE))
    return client


@pytest.fixture
def victor(client: Client) -> Client:
    """Sign in somebody who may only look."""
    client.force_login(make_user("victor", *VIEW))
    return client
