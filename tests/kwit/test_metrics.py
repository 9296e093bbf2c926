"""Metrics: computed when they are asked for, bounded, readable by Prometheus, for those who may."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from kwit import checks
from kwit.models import Membership
from kwit.people.tokens import make_token
from kwit.probes import meters as measures
from kwit.probes.meters import Gauge, Meter
from notify.models import Attempt, Channel, Control, MailQueue, RunLog, TaskQueue
from notify.notes import note
from receipts.models import Change, Reconciliation, Verdict
from tests.browser.story import fill, make_user
from tests.kwit.listed import make_mail
from tests.mails import log

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parent.parent.parent
SECRET = "only-for-tests-and-long-enough"
NAME = re.compile(r"\bkwit_[a-z0-9_]+")


@pytest.fixture
def scrape(settings):
    """Return a function that scrapes and gives {(sample, labels): value}."""
    settings.KWIT = {"METRICS_TOKEN": SECRET}

    def scraped() -> dict[Any, float]:
        response = Client().get("/metrics", headers={"authorization": f"Bearer {SECRET}"})
        assert response.status_code == 200, response.content
        assert response["Content-Type"].startswith("text/plain; version=")
        families = list(text_string_to_metric_families(response.content.decode()))
        return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}

    return scraped


def test_every_part_is_told_also_of_an_empty_database(scrape):
    found = scrape()

    assert found["kwit_up", ("notify",)] == found["kwit_up", ("receipts",)] == 1
    assert found["kwit_pass_last_good_age_seconds", ()] == float("inf")
    assert found["kwit_pass_last_full_age_seconds", ("comment",)] == float("inf")
    assert found["kwit_mails", ("queued",)] == 0
    assert found["kwit_recent_passes", ("ok",)] == 0
    assert found["kwit_recent_candidates", ("order",)] == 0


def test_passes_are_told_by_age_outcome_and_duration(scrape):
    now = timezone.now()
    for minutes, fields in (
        (50, {"ms": 90}),
        (40, {"ms": 3000}),
        (3, {"outcome": "skipped", "ms": 1}),
        (2, {"outcome": "skipped"}),
    ):
        row = log(**fields)
        RunLog.objects.filter(pk=row.pk).update(started_at=now - timedelta(minutes=minutes))
    old = log()
    RunLog.objects.filter(pk=old.pk).update(started_at=now - timedelta(hours=2))

    found = scrape()

    assert found["kwit_pass_last_good_age_seconds", ()] == pytest.approx(40 * 60, abs=30)
    assert found["kwit_passes_skipped_in_a_row", ()] == 2
    assert (found["kwit_recent_passes", ("ok",)], found["kwit_recent_passes", ("skipped",)]) == (2, 2)
    buckets = {labels[0]: value for (name, labels), value in found.items() if name.endswith("duration_seconds_bucket")}
    assert (buckets["0.05"], buckets["0.1"], buckets["2.5"], buckets["5.0"], buckets["+Inf"]) == (0, 1, 1, 2, 2)
    assert found["kwit_recent_pass_duration_seconds_gcount", ()] == 2
    assert found["kwit_recent_pass_duration_seconds_gsum", ()] == pytest.approx(3.09)


def test_kinds_are_told_from_candidate_to_sent_and_what_waits_behind_the_breaker(scrape):
    now = timezone.now()
    run = log()
    breaker = note("breaker", prepared=5, waiting=37, oldest="2026-01-31")
    log("order", pass_id=run.pass_id, candidates=7, mails=5, tasks=2, outcome="warning", said=[breaker])
    RunLog.objects.update(started_at=now)
    Attempt.objects.create(mail=make_mail(1), number=1, recipient="a@example.org", outcome="sent", code=250)

    found = scrape()

    assert found["kwit_recent_candidates", ("order",)] == 7
    assert found["kwit_recent_mails_queued", ("order",)] == 5
    assert found["kwit_recent_tasks_queued", ("order",)] == 2
    assert found["kwit_breaker_waiting", ("order",)] == 37
    assert found["kwit_breaker_waiting", ("comment",)] == 0
    assert found["kwit_recent_mails_sent", ("comment",)] == 1


def test_queues_are_told_by_depth_and_age(scrape):
    now = timezone.now()
    make_mail(1, due_at=now - timedelta(hours=2))
    make_mail(2, due_at=now + timedelta(hours=2))
    make_mail(3, state="failed", due_at=now - timedelta(hours=5))
    TaskQueue.objects.create(control=Control.objects.first(), title="t")

    found = scrape()

    assert (found["kwit_mails", ("queued",)], found["kwit_mails", ("failed",)]) == (2, 1)
    assert found["kwit_mail_oldest_due_age_seconds", ("queued",)] == pytest.approx(7200, abs=30)
    assert found["kwit_mail_oldest_due_age_seconds", ("failed",)] == pytest.approx(18000, abs=30)
    assert found["kwit_mail_oldest_due_age_seconds", ("blocked",)] == 0
    assert found["kwit_tasks_open", ()] == 1


def test_a_depth_is_counted_up_to_its_bound_only(scrape, monkeypatch):
    monkeypatch.setattr("notify.pages.metrics.DEPTH_MAX", 2)
    for key in range(1, 6):
        make_mail(key)

    assert scrape()["kwit_mails", ("queued",)] == 3


def test_attempts_are_told_by_outcome_and_class_of_the_code(scrape):
    mail = make_mail(1)
    for outcome, code in (
        ("sent", 250),
        ("sent", 251),
        ("refused", 550),
        ("deferred", 450),
        ("error", None),
        ("refused", 99),
    ):
        Attempt.objects.create(mail=mail, number=1, recipient="a@example.org", outcome=outcome, code=code)
    Attempt.objects.create(
        mail=mail, number=1, recipient="a", outcome="sent", code=250, at=timezone.now() - timedelta(hours=2)
    )

    found = {labels: value for (name, labels), value in scrape().items() if name == "kwit_recent_attempts"}

    assert found == {
        ("2xx", "sent"): 2,
        ("5xx", "refused"): 1,
        ("4xx", "deferred"): 1,
        ("none", "error"): 1,
        ("other", "refused"): 1,
    }


def test_receipts_and_differences_are_told(scrape):
    for number, changed in ((1, 2), (2, 0)):
        change = Change.objects.create(change_id=f"C{number}", kind="cancel", tenant="a", targets=[], digest="x")
        Reconciliation.objects.create(change=change, match=0, changed=9, missing=9, items=[])
        last = Reconciliation.objects.create(change=change, match=0, changed=changed, missing=number - 1, items=[])
        Verdict.objects.create(
            change=change, kind="cancel", tenant="a", created_at=timezone.now(), reconciliation=last, found="differs"
        )

    found = scrape()

    assert found["kwit_receipts_today", ("cancel",)] == 2
    assert found["kwit_receipts_differing", ()] == 2
    assert found["kwit_reconciliation_differences", ("changed",)] == 2
    assert found["kwit_reconciliation_differences", ("missing",)] == 1


HOSTILE = 'a"b\\c\nd{e="f"} 1\r\u2028 ä'


def test_hostile_names_stay_labels(scrape):
    Channel.objects.create(
        name=HOSTILE, paused_at=timezone.now(), paused_until=timezone.now() + timedelta(hours=1), failures=3
    )
    RunLog.objects.filter(pk=log('a"\n}').pk).update(started_at=timezone.now())

    found = scrape()

    assert found["kwit_channel_paused", (HOSTILE,)] == 1
    assert found["kwit_channel_failures_in_a_row", (HOSTILE,)] == 3
    assert found["kwit_recent_candidates", ('a"\n}',)] == 0


def test_names_follow_the_conventions_and_each_has_its_help_once(scrape, settings):
    fill(passes=3, events=3)
    response = Client().get("/metrics", headers={"authorization": f"Bearer {SECRET}"})
    families = list(text_string_to_metric_families(response.content.decode()))
    names = [family.name for family in families]

    assert len(names) == len(set(names))
    for family in families:
        assert re.fullmatch(r"kwit_[a-z][a-z_]*", family.name)
        assert family.documentation
        assert family.type in ("gauge", "histogram")
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
        if "age" in family.name or "duration" in family.name:
            assert family.name.removesuffix("_gcount").removesuffix("_gsum").endswith("_seconds")


def test_a_scrape_costs_a_fixed_number_of_queries(scrape, django_assert_max_num_queries, django_assert_num_queries):
    fill(passes=3, events=12)
    with django_assert_max_num_queries(32) as few:
        scrape()
    MailQueue.objects.all().delete()
    TaskQueue.objects.all().delete()
    Control.objects.all().delete()
    fill(passes=30, events=60)

    with django_assert_num_queries(len(few)):
        scrape()


def test_a_database_that_does_not_answer_is_a_figure(scrape, monkeypatch):
    def silent(now: Any) -> Any:
        yield Gauge(name="kwit_half", about="x", samples=[((), 1)])
        raise OperationalError("db.internal")

    monkeypatch.setitem(measures._registered, "notify", Meter(name="notify", read=silent))

    found = scrape()

    assert found["kwit_up", ("notify",)] == 0
    assert found["kwit_up", ("receipts",)] == 1
    assert ("kwit_half", ()) not in found


def status(client: Client | None = None, **headers: str) -> int:
    return (client or Client()).get("/metrics", headers=headers).status_code


def test_nobody_may_read_them_unless_told_otherwise(settings):
    settings.KWIT = {}

    assert status() == 401
    assert status(authorization="Bearer ") == 401
    assert status(authorization=f"Bearer {SECRET}") == 401
    settings.KWIT = {"METRICS_TOKEN": SECRET}
    assert status(authorization=f"Bearer {SECRET}x") == 401
    assert status(authorization=f"Basic {SECRET}") == 401
    settings.KWIT = {"METRICS_OPEN": True}
    assert status() == 200


def test_a_user_needs_the_permission_and_to_see_all_tenants(settings):
    settings.KWIT = {}
    Membership.objects.create(user=make_user("member"), tenant="acme")
    for name, rights, wanted in (
        ("a", ("kwit.view_metrics",), 403),
        ("b", ("kwit.see_all_tenants",), 403),
        ("c", ("kwit.view_metrics", "kwit.see_all_tenants"), 200),
    ):
        user = make_user(name, *rights)
        _token, secret = make_token(user, name="prometheus")
        client = Client()
        client.force_login(user)
        assert (status(authorization=f"Bearer {secret}"), status(client)) == (wanted, wanted)


def test_the_site_s_secret_opens_nothing_else(settings):
    settings.KWIT = {"METRICS_TOKEN": SECRET}

    assert Client().get("/api/v1", headers={"authorization": f"Bearer {SECRET}"}).status_code == 401


def test_without_the_package_there_is_no_such_address(settings, monkeypatch):
    settings.KWIT = {"METRICS_OPEN": True}
    monkeypatch.setattr("kwit.probes.metrics.find_spec", lambda name: None)

    assert status() == 404


@pytest.mark.parametrize(
    "given", [{"NOTHING": 1}, {"METRICS_TOKEN": 1}, {"METRICS_OPEN": "yes"}, {"METRICS_TOKEN": "short"}]
)
def test_wrong_settings_are_a_finding_that_does_not_name_the_secret(settings, given):
    settings.KWIT = given

    [found] = checks.check_settings()

    assert found.id == "kwit.E001"
    assert "short" not in found.msg


def test_an_open_address_is_a_finding_of_check_deploy(settings):
    settings.KWIT = {"METRICS_OPEN": True}
    assert [one.id for one in checks.check_metrics_open()] == ["kwit.W002"]
    settings.KWIT = {}
    assert checks.check_metrics_open() == []


def names_scraped(found: dict[Any, float]) -> set[str]:
    return {name for name, _labels in found}


@pytest.mark.parametrize("path", ["deploy/prometheus-alerts.yaml", "docs/monitoring.md"])
def test_each_metric_that_an_alert_or_the_docs_name_exists(scrape, path):
    Channel.objects.create(name="smtp")
    Attempt.objects.create(mail=make_mail(1), number=1, recipient="a", outcome="sent", code=250)
    there = names_scraped(scrape())

    named = set(NAME.findall((ROOT / path).read_text()))

    assert named - there - {"kwit_recent_pass_duration_seconds"} == set()
    assert len(named) > 10


def test_the_docs_name_each_metric(scrape):
    Channel.objects.create(name="smtp")
    Attempt.objects.create(mail=make_mail(1), number=1, recipient="a", outcome="sent", code=250)
    text = (ROOT / "docs/monitoring.md").read_text()

    assert [name for name in names_scraped(scrape()) if name.removesuffix("_bucket") not in text] == []


def test_no_label_of_a_metric_is_an_address_or_a_key(scrape):
    """Cardinality: labels come from kinds, states, outcomes and channels, of which a site has few."""
    fill(passes=5, events=40)

    assert len(scrape()) < 250
