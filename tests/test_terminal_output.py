"""Stored texts on a terminal: in every command they are characters on one line, whatever they contain."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import CommandError, ManagementUtility, call_command, get_commands, load_command_class

from kwit.commands import KwitCommand, LineOutput, escape_controls
from kwit.models import Membership, Token
from notify.models import Attempt, Control, MailQueue
from notify.passes.runner import run_pass
from receipts.models import Audit, Change, StoredPlan
from tests.factories import NOW, make_comment, make_contact, make_line

OURS = ("kwit", "notify", "receipts", "portal")
COMMANDS = sorted(name for name, app in get_commands().items() if app in OURS)
#: Would end a line and begin one that lies, erase the screen, colour it (C1), reverse the order of what follows.
HOSTILE = "x\nFORGED: 3 match\r\x1b[2J\x1b]0;t\x07\x9b31m\u202e\u2028y\x7f"
ACTING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]")

pytestmark = pytest.mark.django_db(transaction=True)


def store_hostile_texts() -> None:
    """Put the text wherever a command may find it; what the engine would refuse to take is put there past it."""
    line = make_line(item=HOSTILE[:20])
    make_comment(line=line, recipient=make_contact(name="ann"), body=HOSTILE, author=HOSTILE)
    Membership.objects.create(user=make_user(), tenant=HOSTILE)
    Token.objects.create(user=make_user(), name=HOSTILE, prefix="p", digest="d" * 64)
    Change.objects.create(
        change_id="CHG-1", kind="cancel", tenant=HOSTILE, targets=[], digest="", actor=HOSTILE, reason=HOSTILE
    )
    Audit.objects.create(
        change_id="CHG-1",
        target_id=line.pk,
        revision_before=1,
        revision_after=2,
        qty=1,
        state_before="x\nFORGED",
        state_after="x\nFORGED",
    )
    StoredPlan.objects.create(
        kind="cancel", change_id="CHG-2", tenant=HOSTILE, targets=[], digest="d", author=HOSTILE, reason=HOSTILE
    )
    control = Control.objects.create(kind="comment", key=4711, recipients=HOSTILE)
    mail = MailQueue.objects.create(
        pass_id="00000000-0000-0000-0000-000000000001",
        control=control,
        template="comment",
        subject=HOSTILE,
        recipients=["ann@example.org"],
        payload={},
        state="failed",
        problem=HOSTILE,
        operator=HOSTILE[:40],
        operated_at=NOW,
    )
    Attempt.objects.create(
        mail=mail, number=1, part=0, recipient=HOSTILE, outcome="refused", code=550, text=HOSTILE, at=NOW, worker="w"
    )


def make_user() -> object:
    from django.contrib.auth import get_user_model

    return get_user_model().objects.get_or_create(username=HOSTILE)[0]


def plan_file(folder: Path) -> str:
    """Return a plan whose own texts are hostile; it is refused, and the refusal shows them."""
    path = folder / "plan.json"
    path.write_text(json.dumps({"change_id": HOSTILE, "tenant": HOSTILE, "targets": [{"id": HOSTILE, HOSTILE: 1}]}))
    return str(path)


def maildir(folder: Path) -> str:
    """Return a Maildir with a report whose words are hostile."""
    for name in ("new", "cur", "tmp"):
        (folder / "mails" / name).mkdir(parents=True, exist_ok=True)
    (folder / "mails" / "new" / "1").write_text(f"From: {HOSTILE!r}\nSubject: \x1b[2J\n\n{HOSTILE}\n", errors="replace")
    return str(folder / "mails")


#: What to call each command with so that it prints what is stored; None: it prints no text that is stored.
ARGUMENTS: dict[str, Callable[[Path], list[list[str]]] | None] = {
    "adopt_control": lambda folder: [["--from", HOSTILE, "--kind", "comment"]],
    "apply_batch": lambda folder: [["--kind", HOSTILE, plan_file(folder)], ["--kind", "cancel", plan_file(folder)]],
    "cancel_batch": lambda folder: [[plan_file(folder)]],
    "demo": None,
    "doctor": lambda folder: [[]],
    "inspect_change": lambda folder: [["CHG-1"], [HOSTILE]],
    "kwit_groups": lambda folder: [[]],
    "kwit_member": lambda folder: [[HOSTILE], ["nosuch" + HOSTILE]],
    "kwit_token": lambda folder: [["list"], ["revoke", HOSTILE, "--name", "nosuch"]],
    "kwit_uninstall": lambda folder: [["--dry-run"]],
    "notify_bounces": lambda folder: [["--maildir", maildir(folder)], ["--maildir", HOSTILE]],
    "notify_deliver": lambda folder: [[]],
    "notify_explain": lambda folder: [["comment", "4711"], [HOSTILE, "1"]],
    "notify_forget": lambda folder: [["ann@example.org"], [HOSTILE]],
    "notify_hold": lambda folder: [["--all", "--reason", HOSTILE], ["4712"]],
    "notify_pass": lambda folder: [["--dry-run"], ["--step", HOSTILE]],
    "notify_preview": lambda folder: [["comment"], [HOSTILE]],
    "notify_prune": lambda folder: [[]],
    "notify_release": lambda folder: [["--channel", HOSTILE]],
    "notify_retry": lambda folder: [["4712"]],
    "notify_work": lambda folder: [["--rounds", "1"]],
    "plan_apply": lambda folder: [["1"]],
    "plan_approve": lambda folder: [["1", "--approver", HOSTILE, "--digest", HOSTILE]],
    "plan_list": lambda folder: [[]],
    "plan_reject": lambda folder: [["1", "--actor", HOSTILE, "--reason", HOSTILE]],
    "plan_store": lambda folder: [["--kind", "cancel", "--author", HOSTILE, plan_file(folder)]],
    "plan_withdraw": lambda folder: [["1", "--actor", HOSTILE, "--reason", HOSTILE]],
    "receipts_audit_log": lambda folder: [[], ["--since", HOSTILE]],
    "receipts_key": lambda folder: [["new", HOSTILE], ["show"]],
    "receipts_seal": lambda folder: [[]],
    "reconcile": lambda folder: [["CHG-1"], ["--all"], [HOSTILE]],
    "revert_plan": lambda folder: [["CHG-1", "--author", HOSTILE], [HOSTILE, "--author", HOSTILE]],
    "seed_portal": lambda folder: [["--orders", "1", "--tenants", HOSTILE]],
}


def printed(name: str, arguments: list[str], *, is_json: bool) -> tuple[str, str]:
    """Return what a command prints on stdout and stderr, its error as ``manage.py`` would print it."""
    out, err = io.StringIO(), io.StringIO()
    command = load_command_class(get_commands()[name], name)
    try:
        call_command(command, *arguments, *(["--json"] if is_json else []), stdout=out, stderr=err)
    except CommandError as error:
        command.stderr.write(f"CommandError: {error}")
    except SystemExit:
        pass
    return out.getvalue(), err.getvalue()


def test_every_command_has_the_base_of_all_and_is_tested_here():
    bases = {name for name in COMMANDS if isinstance(load_command_class(get_commands()[name], name), KwitCommand)}

    assert bases == set(COMMANDS)
    assert set(ARGUMENTS) == set(COMMANDS)
    assert {apps.get_app_config(app).label for app in OURS} == set(OURS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_stored_text_can_neither_forge_a_line_nor_steer_the_terminal(name, tmp_path):
    arguments_of = ARGUMENTS[name]
    if arguments_of is None:
        pytest.skip("prints no stored text")
    store_hostile_texts()

    for arguments in arguments_of(tmp_path):
        for text in printed(name, arguments, is_json=False):
            assert not ACTING.search(text), repr(text)
            assert not [line for line in text.splitlines() if line.startswith("FORGED")], text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_as_json_is_one_object_without_control_characters(name, tmp_path):
    arguments_of = ARGUMENTS[name]
    if arguments_of is None:
        pytest.skip("prints no stored text")
    store_hostile_texts()

    for arguments in arguments_of(tmp_path):
        out, _ = printed(name, arguments, is_json=True)
        json.loads(out)
        assert not ACTING.search(out), repr(out)


@pytest.mark.parametrize(("name", "shown"), [("inspect_change", ["CHG-1"]), ("plan_list", [])])
def test_the_stored_text_is_there_escaped(name, shown):
    """The positive control: the texts do get printed."""
    store_hostile_texts()

    out, _ = printed(name, shown, is_json=False)

    assert "x\\nFORGED: 3 match\\r\\u001b[2J" in out


def test_a_pass_prints_the_hostile_subject_of_a_dry_run_on_its_line():
    store_hostile_texts()

    assert run_pass(is_dry_run=True).listed, "there is something to list"


def test_what_the_stream_cannot_encode_is_escaped_and_letters_stay():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")

    LineOutput(stream).write("zażółć 注文")
    stream.flush()

    assert stream.buffer.getvalue() == b"za\\u017c\\xf3\\u0142\\u0107 \\u6ce8\\u6587\n"
    assert escape_controls("zażółć 注文 👩‍🔧") == "zażółć 注文 👩‍🔧"
    assert escape_controls("\ud800\u2066\t") == "\\ud800\\u2066\\t"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_option_is_one_object_on_stdout_and_exit_2(name, capsys):
    """What argparse says goes to stderr as ever."""
    with pytest.raises(SystemExit) as exited:
        ManagementUtility(["manage.py", name, "--nosuch", "--json"]).execute()

    out, err = capsys.readouterr()
    assert exited.value.code == 2
    assert list(json.loads(out)) == ["error"]
    assert err.startswith("usage: ")
