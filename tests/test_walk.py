"""
Cases A2 and A3: somebody tries every address of the site.

The addresses come from the URL resolver, so that a page that is added later is tried as well.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from kwit.admin.base import ReadOnlyAdmin
from kwit.models import Membership
from tests.browser.story import make_user
from tests.walking import OURS as OUR_APPS
from tests.walking import (
    Place,
    Rows,
    fill,
    fill_installation,
    has_tenant,
    model_of,
    pages_of_ours,
    places,
    routes,
    snapshot,
)

pytestmark = pytest.mark.django_db
OWN, FOREIGN, SITE = "OWNWORD", "FOREIGNWORD", "SITEWORD"
SECRETS = re.compile(f"{FOREIGN}|{SITE}", re.I)
FORM_TARGET = re.compile(r'formaction="([^"?]+)')
#: Answers that tell nothing: not there, not allowed, not like this, sign in first.
NOTHING = {302, 400, 401, 403, 404, 405}


@pytest.fixture
def own() -> Rows:
    return fill(OWN, tenant="mine", key=111)


@pytest.fixture
def foreign() -> Rows:
    return fill(FOREIGN, tenant="theirs", key=222)


@pytest.fixture
def site() -> Rows:
    return fill_installation(SITE)


@pytest.fixture(autouse=True)
def _no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody starts by hand runs in a process of its own; here it must not."""
    started = Counter[str]()
    monkeypatch.setattr("notify.pages.runs.start_command", lambda *args, **kwargs: started.update(["pass"]))
    monkeypatch.setattr("receipts.pages.runs.start_command", lambda *args, **kwargs: started.update(["reconcile"]))


def member() -> User:
    """Return somebody who may do everything there is, for one tenant."""
    user = make_user("member")
    rights = Permission.objects.filter(content_type__app_label__in=OUR_APPS).exclude(codename="see_all_tenants")
    user.user_permissions.set(rights)
    Membership.objects.create(user=user, tenant="mine")
    return user


def viewer() -> User:
    """Return somebody who may see everything, of every tenant, and do nothing."""
    user = make_user("viewer")
    rights = Permission.objects.filter(content_type__app_label__in=OUR_APPS)
    user.user_permissions.set(rights.filter(codename__startswith="view_") | rights.filter(codename="see_all_tenants"))
    return user


def sent(rows: Rows) -> list[dict[str, Any]]:
    """Return what somebody may post to any address to reach these rows."""
    keys = [key for key in rows.every_key() if key.isdigit()][:45]
    answers = {
        **{"confirmed": "1", "post": "yes", "_save": "1", "action": "delete_selected", "from": "detail"},
        **{"recipients": "x@example.org", "subject": "x", "reason": "x", "assignee": "x", "address": "x@example.org"},
        **{"change_id": f"{rows.word}-1", "tenant": rows.tenant, "kind": "cancel", "top": "987654321"},
    }
    return [
        {**answers, "scope": "selected", "pk": keys, "_selected_action": keys},
        {**answers, "scope": "matching", "select_across": "1"},
    ]


def asked(rows: Rows) -> dict[str, Any]:
    """Return questions that name these rows, in the words of every filter there is."""
    return {
        **{"kind": "comment", "key": rows.key, "pass": str(rows.pass_id), "actor": rows.word, "assignee": rows.word},
        **{"address": f"{rows.word.lower()}@example.net", "change_id": f"{rows.word}-1", "tenant": rows.tenant},
        **{"q": rows.word, "author": rows.word, "id": rows.key},
    }


def questions(place: Place, rows: Rows) -> list[dict[str, Any]]:
    """Return what is asked of an address: all at once, an event, and each filter of a list by itself."""
    if not is_ours(place):
        return []
    every = asked(rows)
    page = pages_of_ours().get(model_of(place.route))
    names = [one.name for one in getattr(page, "filters", ())] if place.route.count("/") == 3 else []
    single = [{name: every[name]} for name in names if name in every]
    return [every, {"kind": every["kind"], "key": every["key"]}, *single]


def is_ours(place: Place) -> bool:
    """Whether an address is one of ours, and no page of Django's or another app's about its own rows."""
    parts = place.route.split("/")
    return parts[0] != "admin" or len(parts) < 3 or parts[1] in OUR_APPS


def worth(rows: Rows) -> Iterator[Place]:
    """Yield the addresses that have to do with these rows; what is about none of them is tried with one tenant's."""
    for place in places(rows):
        model = model_of(place.route)
        if rows.tenant or model in rows.found:
            yield place


def bare(page: Any, words: Collection[str] = ()) -> str:
    """Return a page without what differs from one to the next: tokens, times, and the keys that were asked for."""
    text = page.content.decode(errors="replace") if not page.streaming else ""
    text = re.sub(
        r'name="csrfmiddlewaretoken" value="[^"]+"|<time[^>]*>[^<]*</time>',
        "",
        text,
    )
    # Django repeats the key that was asked for.
    text = re.sub(r'<ul class="messagelist">(\s*<li[^>]*>[^<]*exist[^<]*</li>)*\s*</ul>', "", text)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"\b(" + "|".join(map(re.escape, sorted(words))) + r")\b", "X", text) if words else text


def answers(client: Client, path: str, posts: list[dict[str, Any]]) -> list[Any]:
    """Return the answers of an address to a look and to these posts."""
    return [client.get(path), *(client.post(path, data) for data in posts)]


def read(pages: list[Any], *, path: str, asked: Mapping[str, Any] | None = None) -> None:
    """Fail when a page tells of what is not the user's; a link may repeat what was asked."""
    for page in pages:
        told = bare(page).replace(path, "")
        for name, value in (asked or {}).items():
            told = re.sub(rf"((?:\?|&amp;){re.escape(urlencode({name: value}))})(?=&amp;|\")", "", told)
        # What somebody typed may stand in the form that he sent.
        told = re.sub(rf'value="[^"]*(?:{FOREIGN}|{SITE})[^"]*"', "", told, flags=re.I)
        assert not SECRETS.search(told), (path, page.status_code, SECRETS.search(told))
        assert page.status_code != 500, path


def test_the_walk_meets_every_page_and_every_kind_of_row(own: Rows, foreign: Rows, site: Rows) -> None:
    """The positive control: a model whose rows the walk does not know is a page that it does not try."""
    unknown = [model for model in pages_of_ours() if model not in {**own.found, **site.found}]
    walked = {place.route for rows in (foreign, site) for place in places(rows)}

    assert unknown == [], "make a row of it in tests/walking.py"
    from django.urls import get_resolver

    missed = [route for route, _ in routes(get_resolver()) if route not in walked and "(" not in route]
    assert [route for route in missed if route.startswith(tuple(f"admin/{app}/" for app in OUR_APPS))] == []
    assert len(walked) > 60


def test_each_page_of_a_model_with_a_tenant_says_how_it_keeps_it() -> None:
    without = [
        page
        for model, page in pages_of_ours().items()
        if isinstance(page, ReadOnlyAdmin) and has_tenant(model) and not page.tenant_lookup
    ]

    assert without == []


def test_a_member_sees_his_own_rows(client: Client, own: Rows) -> None:
    """The positive control of the next one: the words that it looks for are on the pages."""
    client.force_login(member())

    for model, page in pages_of_ours().items():
        if isinstance(page, ReadOnlyAdmin) and page.tenant_lookup:
            shown = client.get(f"/admin/{model._meta.app_label}/{model._meta.model_name}/")
            assert shown.status_code == 200
            assert OWN.lower() in shown.content.decode().lower(), model
            for row in own.found[model]:
                detail = client.get(page.url("change", row.pk))
                assert detail.status_code == 200, row
                assert OWN.lower() in detail.content.decode().lower(), row


def test_a_member_of_another_tenant_learns_nothing_and_changes_nothing(
    client: Client, own: Rows, foreign: Rows, site: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    client.force_login(member())
    kept = {
        label: [row for row in rows if re.search(f"{FOREIGN}|{SITE}|theirs", str(row), re.I)]
        for label, rows in snapshot().items()
    }
    assert len([label for label, rows in kept.items() if rows]) > 10
    caplog.set_level("INFO")
    for rows in (foreign, site):
        posts = sent(rows)
        for place in worth(rows):
            if place.missing:
                indistinguishable(client, place, posts)
            else:
                pages = answers(client, place.path, posts)
                read(pages, path=place.path)
                for question in questions(place, rows):
                    read([client.get(place.path, question)], path=place.path, asked=question)
        # What a warning says of a path is what was asked for.
        logged = "\n".join(record.getMessage() for record in caplog.records if record.name != "django.request")
        assert not SECRETS.search(logged)
        caplog.clear()

    for label, rows_now in snapshot().items():
        # The actions that he asked for left rows of their own.
        assert [row for row in kept[label] if row not in rows_now] == [], label


def indistinguishable(client: Client, place: Place, posts: list[dict[str, Any]]) -> None:
    """Fail unless the address of a foreign row is answered exactly as that of no row."""
    for given in (None, *posts):
        one, none = (
            client.get(path) if given is None else client.post(path, given) for path in (place.path, place.missing)
        )
        words = {*place.path.split("/"), *place.missing.split("/")} - {*place.route.split("/")}
        told, nothing = (
            (
                page.status_code,
                bare(page, words),
                re.sub(r"[^/?]*[0-9][^/?]*|no-such-thing", "X", page.get("Location", "")),
            )
            for page in (one, none)
        )
        assert told == nothing, (place, given and given["scope"])
        assert one.status_code in NOTHING or "action/<slug:name>/" in place.route, (place, one.status_code)
        read([one], path=place.path)


def test_a_viewer_changes_nothing_by_any_address(client: Client, own: Rows, site: Rows) -> None:
    client.force_login(viewer())
    before = snapshot()

    for rows in (own, site):
        for place in worth(rows):
            for data in sent(rows):
                page = client.post(place.path, data)
                assert page.status_code != 500, place
                assert "action/<slug:name>/" not in place.route or page.status_code in (403, 404), place

    after = snapshot()
    assert [label for label in after if after[label] != before[label]] == []


def test_a_viewer_is_offered_nothing_that_would_fail(client: Client, own: Rows, site: Rows) -> None:
    client.force_login(viewer())

    for rows in (own, site):
        for place in worth(rows):
            page = client.get(place.path)
            assert page.status_code != 500, place
            if page.status_code == 200 and not page.streaming and "<html" in page.content.decode(errors="replace"):
                targets = re.findall(FORM_TARGET, page.content.decode())
                assert targets == [], place

    # The positive control: who may is offered something by these words.
    client.force_login(User.objects.create_superuser("root"))
    assert re.findall(FORM_TARGET, client.get("/admin/notify/mailqueue/").content.decode())


def test_the_same_posts_change_rows_when_somebody_may(client: Client, own: Rows, site: Rows) -> None:
    """The positive control of the viewer's: the posts are such that they would do something."""
    client.force_login(User.objects.create_superuser("root"))
    before = snapshot()

    for place in places(own):
        if "action/<slug:name>/" in place.route:
            for data in sent(own):
                client.post(place.path, data)

    after = snapshot()
    changed = {label for label in after if after[label] != before[label]}
    assert {"notify.MailQueue", "notify.TaskQueue", "kwit.Action"} <= changed


def test_nobody_gets_past_the_sign_in(client: Client, own: Rows, site: Rows) -> None:
    before = snapshot()

    for rows in (own, site):
        for place in worth(rows):
            pages = answers(client, place.path, sent(rows)[:1])
            told = "".join(bare(page) for page in pages).replace(place.path, "")
            assert not re.search(f"(?<!%2F)(?:{OWN}|{SITE})(?!-[12])", told), place

    assert snapshot() == before
