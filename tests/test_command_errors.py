"""Commands that cannot do as told: one clear line, the documented exit code, nothing changed, JSON for programs."""

import io
import json
import os
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command

from notify.models import RunLog
from receipts.models import Change
from tests.factories import make_comment, make_contact
from tests.test_docs import ROOT

#: Runs each command on a database that is not there, and prints what stdout and the error said.
ASK_EACH = """
import io, json, sys, django
from django.core.management import CommandError, call_command
django.setup()
for arguments in json.loads(sys.argv[1]):
    out = io.StringIO()
    try:
        call_command(*arguments, "--json", stdout=out)
    except CommandError as error:
        print(json.dumps([error.returncode, str(error), json.loads(out.getvalue())]))
"""
ON_NO_DATABASE = [
    ["notify_pass"],
    ["notify_deliver"],
    ["notify_retry", "--all"],
    ["notify_release", "1"],
    ["notify_explain", "comment", "1"],
    ["notify_preview", "comment", "1"],
    ["inspect_change", "CHG-1"],
    ["reconcile", "--all"],
    ["plan_list"],
    ["plan_apply", "1"],
    ["kwit_groups"],
    ["kwit_member", "olga"],
    ["kwit_token", "list"],
]


def test_on_a_database_that_is_not_there_each_command_says_so_in_one_line_and_in_one_object(tmp_path):
    given = {"DEBUG": "1", "DJANGO_SETTINGS_MODULE": "config.settings"}
    given["DATABASE_URL"] = f"sqlite:///{tmp_path}"  # a folder
    done = subprocess.run(
        [sys.executable, "-c", ASK_EACH, json.dumps(ON_NO_DATABASE)],
        env=os.environ | given,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    told = [json.loads(line) for line in done.stdout.splitlines()]

    assert len(told) == len(ON_NO_DATABASE), done.stdout
    for code, error, printed in told:
        assert code == 1
        assert "unable to open database file" in error
        assert "\n" not in error
        assert printed == {"error": error}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["notify_pass", "--step", "nosuch"],
        ["notify_preview", "nosuch"],
        ["notify_retry"],
        ["notify_release", "1", "--to", "x y"],
        ["adopt_control", "--from", "nosuch", "--kind", "comment"],
        ["inspect_change", "nosuch"],
        ["reconcile", "nosuch"],
        ["reconcile", "--all", "--run", "4"],
        ["plan_apply", "99"],
        ["plan_approve", "99", "--approver", "bob", "--digest", "x"],
        ["kwit_member", "nosuch"],
        ["notify_release", "--channel", "nosuch"],
        ["notify_release", "4711", "--confirm"],
        ["notify_retry", "4711"],
        ["kwit_token", "revoke", "nosuch", "--name", "x"],
    ],
    ids=" ".join,
)
@pytest.mark.django_db(transaction=True)
def test_an_error_is_one_object_on_stdout_too(arguments):
    out = io.StringIO()

    with pytest.raises(CommandError) as raised:
        call_command(*arguments, "--json", stdout=out)

    assert raised.value.returncode == 1
    assert json.loads(out.getvalue()) == {"error": str(raised.value)}
    assert not RunLog.objects.exists()
    assert not Change.objects.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["notify_deliver", "--limit", "-3"],
        ["notify_work", "--rounds", "0"],
        ["notify_work", "--rounds", "1", "--every", "nan"],
        ["notify_work", "--rounds", "1", "--every", "-1"],
        ["notify_retry", "99999999999999999999"],
        ["notify_release", "0"],
        *(
            [name, *more, "--database", "nosuch"]
            for name, *more in [
                ["notify_deliver"],
                ["notify_explain", "comment", "1"],
                ["notify_preview", "comment"],
                ["notify_release", "1"],
                ["notify_retry", "--all"],
                ["notify_work", "--rounds", "1"],
                ["kwit_groups"],
                ["kwit_member", "olga"],
            ]
        ),
    ],
    ids=" ".join,
)
def test_a_value_that_no_command_can_use_is_a_wrong_option(arguments):
    # Without a database: what is refused here has not asked for one. For a program argparse's exit 2 is this exception.
    with pytest.raises(
        CommandError, match=r"^Error: argument (--\w+|ID): (invalid|99999999999999999999 is not|0 is not|-3)"
    ):
        call_command(*arguments)


@pytest.mark.django_db(transaction=True)
def test_a_limit_that_no_database_can_count_to_lists_everything():
    out = io.StringIO()

    call_command("plan_list", "--limit", "9" * 30, "--json", stdout=out)

    assert json.loads(out.getvalue()) == {"plans": []}


@pytest.mark.django_db(transaction=True)
def test_a_preview_of_a_kind_without_a_body_names_the_template_that_is_missing(monkeypatch):
    from portal.notifications import CommentAdded

    monkeypatch.setattr(CommentAdded, "template", "nobody")
    make_comment(recipient=make_contact())

    with pytest.raises(
        CommandError, match=r"the mail cannot be made: TemplateDoesNotExist: notify/mail/nobody\.\w+\.txt"
    ):
        call_command("notify_preview", "comment")
