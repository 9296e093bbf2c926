"""The notify part of CONTRACT.md's story, on real rows, through the commands."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from notify.models import Control, MailQueue, RunLog, TaskQueue
from portal import demo
from portal.models import Comment, Order
from portal.story_notify import another_session_holding_the_lock, play_notify
from portal.story_receipts import play_receipts
from tests.crashing import ROOT
from tests.factories import make_comment, make_contact
from tests.postgres import free_port
from tests.racing import until

committing = pytest.mark.django_db(transaction=True)

PASSWORD = re.compile(r"demo with the password (\S+)")


def controls(line: int) -> list[tuple[int, int]]:
    """Return the control rows of a line's comments as (key, key2)."""
    return list(Control.objects.filter(kind="comment", key=line).order_by("key2").values_list("key", "key2"))


def mails_of(pass_id: UUID) -> list[tuple[int, int]]:
    """Return the events that a pass queued mails for as (key, key2)."""
    mails = MailQueue.objects.filter(pass_id=pass_id, state="queued")
    return sorted(mails.values_list("control__key", "control__key2"))


def whole(pass_id: UUID) -> RunLog:
    """Return a pass's own row in the run log."""
    return RunLog.objects.get(pass_id=pass_id, step="pass")


@committing
def test_the_story_queues_two_mails_then_none_then_one_and_then_skips():
    story = play_notify(lambda text: None, using="default")

    (one, two), passes = story.lines, story.passes
    first, second, third = Comment.objects.filter(line=one).order_by("pk").values_list("pk", flat=True)
    (other,) = Comment.objects.filter(line=two).values_list("pk", flat=True)
    assert controls(one) == [(one, second), (one, third)], f"the first comment {first} was overtaken before any pass"
    assert controls(two) == [(two, other)]
    assert [mails_of(pass_id) for pass_id in passes] == [
        sorted([(one, second), (two, other)]),
        [],
        [(one, third)],
        [],
    ]
    assert [whole(pass_id).outcome for pass_id in passes] == ["ok", "ok", "ok", "skipped"]
    assert [whole(pass_id).mails for pass_id in passes] == [2, 0, 1, 0]
    assert [whole(pass_id).candidates for pass_id in passes] == [2, 0, 1, 0]
    assert TaskQueue.objects.count() == 0
    assert MailQueue.objects.count() == 3


@committing
def test_the_skipped_pass_has_one_row_with_the_lock_code_and_ran_no_step():
    story = play_notify(lambda text: None, using="default")

    (row,) = RunLog.objects.filter(pass_id=story.passes[3])
    assert row.step == "pass"
    assert row.error.startswith("SKIPPED: lock code -1, held by ")
    assert row.host == socket.gethostname()
    assert row.pid == os.getpid()


@committing
def test_the_story_says_the_numbers_that_the_database_has():
    said: list[str] = []

    story = play_notify(said.append, using="default")

    assert [line.strip(" .:") for line in said if "queued" in line] == [
        "2 mails queued",
        "0 mails queued",
        "1 mail queued",
        "0 mails queued",
    ]
    for subject in MailQueue.objects.filter(control__key__in=story.lines).values_list("subject", flat=True):
        assert any(subject in line for line in said)
    assert any(whole(story.passes[3]).error in line for line in said)


@committing
def test_the_story_counts_its_own_events_in_a_database_that_has_others():
    strange = make_comment(recipient=make_contact())
    said: list[str] = []
    play_notify(lambda text: None, using="default")
    Comment.objects.create(line=strange.line, author="x", recipient=strange.recipient)

    story = play_notify(said.append, using="default")

    assert [line.split()[0] for line in said if "queued" in line] == ["2", "0", "1", "0"]
    assert (strange.line_id, Comment.objects.filter(line=strange.line).latest("pk").pk) in mails_of(story.passes[0])
    assert Order.objects.filter(number__startswith="DEMO-").count() == 2


@committing
def test_after_the_story_the_lock_is_free():
    play_notify(lambda text: None, using="default")

    with another_session_holding_the_lock(using="default"):
        pass


@committing
def test_a_story_that_meets_a_running_pass_says_so_and_leaves_no_session_behind():
    with (
        another_session_holding_the_lock(using="default"),
        pytest.raises(CommandError, match="another pass is running"),
        another_session_holding_the_lock(using="default"),
    ):
        pass


@committing
def test_a_process_that_has_called_a_pass_still_ends_on_sigterm():
    before = signal.getsignal(signal.SIGTERM)

    call_command("notify_pass", "--json")

    assert signal.getsignal(signal.SIGTERM) is before


def test_the_demo_refuses_to_make_a_superuser_on_a_production_site(settings):
    settings.DEBUG = False

    with pytest.raises(CommandError, match="DEBUG=1"):
        call_command("demo", "--serve", "0")


@pytest.mark.django_db
def test_a_busy_port_is_named_before_anything_is_touched(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"port {port} "):
            call_command("demo", "--port", str(port), "--json")

    assert f"port {port} " in json.loads(capsys.readouterr().out)["error"]
    assert not Order.objects.exists()


@pytest.mark.django_db
def test_a_database_that_somebody_named_is_only_added_to():
    kept = make_comment()
    name = connection.settings_dict["NAME"]

    demo.use_own_file()

    assert connection.settings_dict["NAME"] == name
    assert Comment.objects.filter(pk=kept.pk).exists()


@pytest.fixture
def newcomer(tmp_path: Path) -> dict[str, str]:
    """Return the environment of somebody who has set nothing, with ``var/`` in a temporary folder."""
    (tmp_path / "demo_settings.py").write_text(
        "from config.settings import *\n"
        f"VAR_DIR = __import__('pathlib').Path({str(tmp_path)!r})\n"
        "file = f'sqlite:///{VAR_DIR / \"kwit.sqlite3\"}'\n"
        "DATABASES = {'default': promising(env.database('DATABASE_URL', default=file))}\n"
    )
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    return kept | {"DEBUG": "1", "PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "demo_settings"}


def run_demo(environment: dict[str, str], *options: str) -> subprocess.Popen[str]:
    """Start the demo as ``make demo`` does."""
    command = [sys.executable, str(ROOT / "manage.py"), "demo", *options]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # As in a terminal: whoever runs the tests in the background has Ctrl-C switched off, for the children too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def page(process: subprocess.Popen[str], address: str) -> str:
    """Return a page of the demo's server; nothing while it does not answer yet."""
    assert process.poll() is None, process.communicate()[0]
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            text: str = answer.read().decode()
            return text
    except urllib.error.URLError:
        return ""


def test_the_demo_runs_twice_from_an_empty_file_and_serves_the_admin_until_ctrl_c(newcomer, tmp_path):
    with run_demo(newcomer, "--serve", "0", "--database", "default", "--json") as ended:
        once = ended.communicate(timeout=180)[0]
    assert ended.returncode == 0, once
    [told] = [json.loads(line) for line in once.splitlines() if line.startswith("{")]
    assert told == {
        "databases": {"default": f"sqlite3, {tmp_path / 'demo.sqlite3'}"},
        "user": "demo",
        "password": PASSWORD.search(once)[1],
        "url": None,
    }

    port = free_port()
    with run_demo(newcomer, "--port", str(port)) as process:
        try:
            assert 'name="password"' in until(lambda: page(process, f"http://127.0.0.1:{port}/"), timeout_s=180)
            process.send_signal(signal.SIGINT)
            again = process.communicate(timeout=60)[0]
        finally:
            process.kill()
    assert process.returncode == 0, again

    assert f"http://127.0.0.1:{port}/" in again
    assert all("Order DEMO-1 " in said and said.count("2 mails queued") == 1 for said in (once, again))
    assert PASSWORD.search(once)[1] != PASSWORD.search(again)[1]
    assert (tmp_path / "demo.sqlite3").is_file()
    assert not (tmp_path / "kwit.sqlite3").exists()


def without_figures(text: str) -> str:
    """Replace what differs from run to run and from database to database."""
    return re.sub(r"\d+ ms|\(line \d+\)|DEMO-\d+|held by .*", "…", text)


def shown_in(page: str) -> str:
    """Return the story as a page of the documentation shows it."""
    return re.findall(r"^```text\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)[-1 if "tutorial" in page else 0]


@committing
def test_the_tutorial_shows_what_the_story_says():
    said: list[str] = []
    play_notify(said.append, using="default")

    assert without_figures("\n".join(said)) in without_figures(shown_in("docs/tutorial.md"))


@committing
def test_the_tutorial_shows_the_commands_of_the_receipts():
    said: list[str] = []
    play_receipts(said.append, using="default")

    commands = [line for line in said if line.startswith("$ ")]
    assert len(commands) == 6
    assert [line for line in shown_in("docs/tutorial.md").splitlines() if line.startswith("$ manage.py ")] == commands


def test_the_readme_shows_lines_of_the_story_in_their_order():
    lines = shown_in("README.md").splitlines()
    story = iter(shown_in("docs/tutorial.md").splitlines())

    assert len(lines) == 10
    assert [line for line in lines if line not in story] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 700
