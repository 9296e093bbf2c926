"""What only SQLite's dialect has: a lock file that can be deleted, links, and databases in memory."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.backends.sqlite3.base import DatabaseWrapper

from notify.dialects import dialect_of
from notify.dialects.base import BUSY, GRANTED
from notify.dialects.sqlite import NotifySqlite
from notify.errors import LockUnusable
from notify.passes.runner import run_pass
from tests.notify.samples import later, log_row

sqlite = NotifySqlite()

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite only"),
]


def open_database(name: str) -> DatabaseWrapper:
    """Return a connection of its own to a database of this name."""
    return DatabaseWrapper({**connection.settings_dict, "NAME": name, "OPTIONS": {}}, alias="other")


@pytest.fixture
def lock_file() -> Iterator[Path]:
    path = sqlite.lock_path(connection)
    assert path is not None
    path.unlink(missing_ok=True)
    yield path
    path.unlink(missing_ok=True)


def test_the_lock_file_stands_beside_the_database(lock_file):
    answer = sqlite.try_lock(connection)

    assert lock_file.parent == Path(connection.settings_dict["NAME"]).resolve().parent
    assert lock_file.exists()
    sqlite.unlock(connection, answer.token)


def test_the_holder_of_a_deleted_lock_file_is_no_holder_any_more(lock_file):
    """E12: whoever comes next gets a new file's lock, so the one whose file is gone has to stop."""
    first = sqlite.try_lock(connection)
    lock_file.unlink()

    assert not sqlite.is_locked(connection, first.token)
    second = sqlite.try_lock(connection)
    assert second.is_granted
    assert not sqlite.is_locked(connection, first.token), "the new file is not the old one"
    assert sqlite.is_locked(connection, second.token)

    sqlite.unlock(connection, first.token)
    assert sqlite.is_locked(connection, second.token)
    sqlite.unlock(connection, second.token)


def test_a_pass_whose_lock_file_is_deleted_stops_before_its_next_commit_and_says_so(lock_file):
    """E12, end to end: one holder at any time, and the other one's row tells why it stopped."""
    report = run_pass(now=later(), is_stopping=lambda: bool(lock_file.unlink(missing_ok=True)))

    assert report.outcome == "error"
    assert "lock file was deleted" in log_row(report).error
    assert [step.step for step in report.steps] == ["order"], "the steps behind it did not run"


def test_links_to_one_database_lead_to_one_lock(tmp_path):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "site.sqlite3", tmp_path / "link.sqlite3"
    real.touch()
    link.symlink_to(real)
    one, other = open_database(str(real)), open_database(str(link))

    answer = sqlite.try_lock(one)

    assert sqlite.try_lock(other).code == BUSY
    sqlite.unlock(one, answer.token)


def test_two_databases_have_two_locks(tmp_path):
    one, other = open_database(str(tmp_path / "one.sqlite3")), open_database(str(tmp_path / "other.sqlite3"))

    first, second = sqlite.try_lock(one), sqlite.try_lock(other)

    assert (first.code, second.code) == (GRANTED, GRANTED)
    sqlite.unlock(one, first.token)
    sqlite.unlock(other, second.token)


@pytest.mark.parametrize("name", [":memory:", "file:memorydb_kwit?mode=memory&cache=shared"])
def test_a_database_in_memory_is_locked_against_another_thread(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = open_database(name)
    answer = sqlite.try_lock(here)
    codes: list[int] = []

    def attempt() -> None:
        codes.append(sqlite.try_lock(open_database(name)).code)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join(20)

    assert codes == [BUSY]
    assert sqlite.try_lock(here).code == BUSY
    assert sqlite.is_locked(here, answer.token)
    sqlite.unlock(here, answer.token)
    assert list(tmp_path.iterdir()) == [], "there is no file to lock, and none was made"


def test_an_old_token_has_no_power_over_a_new_holder_in_memory():
    one, other = open_database(":memory:"), open_database(":memory:")
    old = sqlite.try_lock(one)
    sqlite.unlock(one, old.token)
    new = sqlite.try_lock(other)

    sqlite.unlock(one, old.token)

    assert not sqlite.is_locked(one, old.token)
    assert sqlite.is_locked(other, new.token)
    sqlite.unlock(other, new.token)


def test_the_temporary_table_of_a_stream_is_gone_when_the_stream_ends(temporary_tables):
    from portal.models import Contact

    Contact.objects.create(name="one")
    dialect = dialect_of(connection)

    chunks = dialect.stream(Contact.objects.values("name"), names=["name"], rows=1)
    next(chunks)
    assert len(temporary_tables()) == 1
    chunks.close()

    assert temporary_tables() == []


@pytest.fixture
def temporary_tables() -> Any:
    def tables() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM temp.sqlite_master WHERE name LIKE 'kwit%%'")
            return [name for (name,) in cursor.fetchall()]

    return tables


@pytest.mark.parametrize("text", ["database is locked", "database table is locked: notify_control"])
def test_a_busy_database_is_worth_another_try(text):
    assert sqlite.is_transient(DatabaseError(text))


def test_a_file_system_without_locks_is_an_error_not_a_busy_lock(lock_file, monkeypatch):
    """Taken for busy, every pass would be skipped for ever, with exit code 0."""

    def refuse(*_: Any) -> None:
        raise OSError("No locks available")

    monkeypatch.setattr("notify.dialects.sqlite.lock_file", refuse)

    with pytest.raises(LockUnusable, match="No locks available"):
        sqlite.try_lock(connection)


def test_a_lock_file_that_cannot_be_opened_is_named(lock_file):
    lock_file.mkdir()
    try:
        with pytest.raises(LockUnusable, match=re.escape(lock_file.name)):
            sqlite.try_lock(connection)
    finally:
        lock_file.rmdir()
