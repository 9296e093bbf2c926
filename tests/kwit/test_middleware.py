"""The strict policy: on Kwit's pages, on the whole site when it says so, and never over a policy that is there."""

from typing import Any

import django
import pytest
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError
from django.db.utils import ConnectionHandler
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import resolve

from kwit.middleware import DJANGO_CSP, HEADER, SANDBOX, STRICT, StrictPolicyMiddleware, policy_text, sandboxed

POLICY = policy_text(STRICT)
#: Pages of Kwit, of its admin classes and of a host's own class made from ReadOnlyAdmin.
KWITS = [
    "/admin/notify/mailqueue/",
    "/admin/notify/runlog/skipped/",
    "/admin/kwit/token/new/",
    "/admin/portal/orderline/",
]
KWITS += ["/admin/receipts/change/nowhere/change/", "/api/v1", "/healthz/live", "/metrics", "/admin/kwit/action/"]
#: Pages that belong to the host.
HOSTS = ["/admin/", "/admin/auth/user/", "/admin/login/", "/nowhere/"]


@pytest.fixture
def guest(settings: Any) -> None:
    """Be a host whose settings say nothing of the policy."""
    settings.KWIT = {}


def test_the_policy_allows_no_inline_script_and_no_other_origin() -> None:
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert POLICY.startswith("default-src 'none'; script-src 'self'; ")


@pytest.mark.parametrize("address", [*KWITS, *HOSTS])
@pytest.mark.django_db
def test_every_page_of_a_strict_site_carries_the_policy_and_is_not_stored(admin_client: Client, address: str) -> None:
    page = admin_client.get(address)

    assert page[HEADER] == POLICY
    assert "no-store" in page["Cache-Control"]


@pytest.mark.parametrize("address", KWITS)
@pytest.mark.usefixtures("guest")
def test_a_guests_own_pages_carry_the_policy(admin_client: Client, address: str) -> None:
    page = admin_client.get(address)

    assert page[HEADER] == POLICY
    assert "no-store" in page["Cache-Control"]


@pytest.mark.parametrize("address", HOSTS)
@pytest.mark.usefixtures("guest")
def test_a_guest_leaves_the_hosts_pages_alone(admin_client: Client, address: str) -> None:
    assert HEADER not in admin_client.get(address)


@pytest.mark.django_db
def test_a_refusal_that_names_its_user_is_not_stored(client: Client) -> None:
    client.force_login(User.objects.create_user("bob", is_staff=True))

    page = client.get("/admin/notify/mailqueue/")

    assert page.status_code == 403
    assert "bob" in page.content.decode()
    assert "no-store" in page["Cache-Control"]


def test_a_response_keeps_the_headers_it_has() -> None:
    own = StrictPolicyMiddleware(lambda request: HttpResponse(headers={HEADER: "sandbox", "Cache-Control": "private"}))

    page = own(RequestFactory().get("/"))

    assert (page[HEADER], page["Cache-Control"]) == ("sandbox", "private")


def test_forms_may_lead_where_the_site_says(settings: Any) -> None:
    settings.KWIT = {"STRICT_SITE": True, "FORM_TARGETS": ["https://login.example.org"]}

    page = StrictPolicyMiddleware(lambda request: HttpResponse())(RequestFactory().get("/"))

    assert "form-action 'self' https://login.example.org;" in page[HEADER]


def test_where_djangos_own_middleware_writes_the_policy_it_gets_it(settings: Any) -> None:
    settings.MIDDLEWARE = [DJANGO_CSP, "kwit.middleware.StrictPolicyMiddleware"]

    page: Any = StrictPolicyMiddleware(lambda request: HttpResponse())(RequestFactory().get("/"))

    assert HEADER not in page
    assert page._csp_config == STRICT


@pytest.mark.skipif(django.VERSION < (6, 0), reason="Django has its own middleware from 6.0 on")
@pytest.mark.usefixtures("guest")
def test_beside_djangos_own_middleware_each_page_has_the_policy_of_its_owner(
    settings: Any, admin_client: Client
) -> None:
    place = settings.MIDDLEWARE.index("kwit.middleware.StrictPolicyMiddleware")
    settings.MIDDLEWARE = [*settings.MIDDLEWARE[:place], DJANGO_CSP, *settings.MIDDLEWARE[place:]]
    settings.SECURE_CSP = {"default-src": ["'self'"], "img-src": ["https:"]}

    theirs, ours = admin_client.get("/admin/auth/user/"), admin_client.get("/admin/kwit/action/")

    assert theirs[HEADER] == "default-src 'self'; img-src https:"
    assert ours[HEADER] == POLICY


def test_a_sandboxed_document_may_do_nothing() -> None:
    page = sandboxed("<script>alert(1)</script>")

    assert page[HEADER] == policy_text(SANDBOX)
    assert page[HEADER].startswith("sandbox; default-src 'none'; ")


@pytest.mark.django_db
@pytest.mark.parametrize(("answers", "status"), [(False, 503), (True, None)])
def test_a_page_whose_database_cannot_be_reached_says_so(
    rf: RequestFactory, monkeypatch: pytest.MonkeyPatch, answers: bool, status: int | None
) -> None:
    if not answers:
        there = {"ENGINE": "django.db.backends.sqlite3", "NAME": "/no/such/place/kwit.sqlite3"}
        monkeypatch.setattr("kwit.middleware.connections", ConnectionHandler({"default": there}))
    request = rf.get("/admin/kwit/action/")
    request.resolver_match = resolve(request.path)
    middleware = StrictPolicyMiddleware(lambda request: HttpResponse())

    for error in (OperationalError("secret of the server"), InterfaceError("connection is closed")):
        page = middleware.process_exception(request, error)
        assert (page and page.status_code) == status
        if page is not None:
            assert "A database does not answer" in page.content.decode()
            assert "secret" not in page.content.decode()
    assert middleware.process_exception(request, ValueError("ours")) is None
