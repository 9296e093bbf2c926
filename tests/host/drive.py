"""Uses every feature in a host project; run there by test_wheel.py, with the wheel's code only."""

import json
import os
import sys
from io import StringIO
from pathlib import Path

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "stranger.settings"
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import reverse  # noqa: E402
from django.utils import timezone  # noqa: E402
from shop.models import Parcel  # noqa: E402

import kwit  # noqa: E402
import notify  # noqa: E402
import receipts  # noqa: E402
from notify.models import Control, MailQueue, TaskQueue, Wording  # noqa: E402
from receipts.api import Target, apply_change, apply_plan, approve_plan, inspect_change, person_of, store_plan  # noqa: E402

SITE = Path(sys.argv[1])


def run(*words: str) -> dict:
    out = StringIO()
    call_command(*words, "--json", stdout=out)
    return json.loads(out.getvalue())


def deliver() -> list[str]:
    """Deliver to files; return the mails that were written."""
    from django.conf import settings

    folder = Path(settings.MAIL_FOLDER)
    before = set(folder.glob("*"))
    answer = run("notify_deliver")
    assert answer["error"] is None, answer
    # Each connection has a file of its own; one that nothing went over leaves it empty.
    return [text for path in sorted(set(folder.glob("*")) - before) if (text := path.read_text())]


def check_origin() -> None:
    for package in (kwit, notify, receipts):
        assert Path(package.__file__).is_relative_to(SITE), package.__file__
    assert not any(part == "wt" for part in sys.path)
    call_command("check", "--fail-level", "WARNING")


def check_mails() -> None:
    for number in ("P-1", "P-2"):
        Parcel.objects.create(
            number=number, email="ann@example.org", language="pl_PL", weight="1234.50", late_since=timezone.now()
        )
    shown = StringIO()
    call_command("notify_preview", "late", "1", stdout=shown)
    assert "1234,50" in shown.getvalue(), shown.getvalue()
    answer = run("notify_pass")
    assert answer["outcome"] == "ok", answer
    assert [(step["step"], step["mails"], step["tasks"]) for step in answer["steps"]] == [
        ("late", 2, 2),
        ("lost", 2, 0),
    ]
    assert TaskQueue.objects.filter(title="Look for P-1").count() == 1
    assert set(Control.objects.filter(kind="lost").values_list("original_key", flat=True)) == {"P-1", "P-2"}
    run("notify_explain", "lost", "P-2")
    MailQueue.objects.update(created_at="2020-01-01T00:00:00Z", due_at="2020-01-01T00:00:00Z", held_for="")
    # Quiet hours all day long: what keeps them waits, the other digest goes.
    from django.test import override_settings

    with override_settings(NOTIFY={**NOTIFY, "QUIET_HOURS": "00:00-23:59:59"}):
        sent = deliver()
    assert len(sent) == 1, sent
    assert "OWN LOOK 2" in sent[0], sent
    assert MailQueue.objects.filter(held_for="quiet").exists()
    MailQueue.objects.filter(state="queued").update(due_at="2020-01-01T00:00:00Z", held_for="")
    sent = deliver()
    assert len(sent) == 1, sent
    [late] = sent
    assert "Content-Type: text/html" in late, late
    assert "P-1" in late
    assert "P-2" in late
    assert set(MailQueue.objects.values_list("state", flat=True)) == {"sent"}, list(
        MailQueue.objects.values_list("state", "problem")
    )


def check_changes() -> None:
    first, second = Parcel.objects.order_by("pk")
    targets = [Target(id=first.pk, revision=0, qty=1)]
    assert (
        apply_change(kind="cancel", change_id="CHG-1", tenant="shop", targets=targets, actor="ann", reason="")
        is not None
    )
    assert inspect_change(change_id="CHG-1") is not None
    first.refresh_from_db()
    assert first.state == "cancelled"
    assert run("reconcile", "--all")["changes"][0]["match"] == 1
    ann, ben = (User.objects.create_user(name) for name in ("ann", "ben"))
    plan = store_plan(
        kind="cancel",
        change_id="CHG-2",
        tenant="shop",
        targets=[Target(id=second.pk, revision=0, qty=1)],
        author=person_of(ann),
        reason="late",
    )
    approve_plan(pk=plan.pk, approver=person_of(ben), digest=plan.digest)
    assert run("plan_list")
    assert apply_plan(pk=plan.pk, actor="ann")
    second.refresh_from_db()
    assert second.state == "cancelled"


def check_pages() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root", "root@example.org"))
    pages = [reverse("admin:index")]
    for model, model_admin in admin.site._registry.items():
        if model._meta.app_label in ("kwit", "notify", "receipts"):
            pages.append(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"))
            row = model._default_manager.first()
            if row is not None:
                pages.append(model_admin.url("change", model_admin.key_of(row.pk)))
    mail = MailQueue.objects.order_by("pk")[0]
    pages += [reverse("admin:notify_mailqueue_preview", args=[mail.pk]), reverse("admin:notify_control_explain")]
    write = reverse("admin:notify_wording_write", args=["late", "en"])
    pages.append(write)
    listed = client.get("/api/v1/").json()["resources"]
    pages += [
        "/api/v1/",
        "/metrics",
        "/healthz",
        *(f"/api/v1/{one['name']}" for one in listed if one["name"] != "explain"),
    ]
    assert len(pages) > 30, pages
    for page in pages:
        answer = client.get(page, follow=True)
        assert answer.status_code == 200, (page, answer.status_code, answer.content[-500:])
    client.post(write, {"do": "save", "subject": "Written {{ number }}"})
    assert Wording.objects.get().author == "root"


from django.conf import settings  # noqa: E402

NOTIFY = settings.NOTIFY
check_origin()
check_mails()
check_changes()
check_pages()
sys.stdout.write(f"every feature works on Django {django.__version__}\n")
