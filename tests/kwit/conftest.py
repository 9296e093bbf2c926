"""Programs that ask, and rows that they find."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from kwit.models import Membership
from kwit.people.tokens import make_token
from tests.browser.story import VIEW, make_user

ALL = (
    *VIEW,
    *("receipts.view_change", "receipts.view_reconciliation", "receipts.view_storedplan"),
    *("kwit.view_action", "kwit.see_all_tenants"),
)
Ask = Callable[..., Any]


def program_of(user: User, name: str = "script") -> Ask:
    """Return a function that gets an address with a token of this user."""
    _token, secret = make_token(user, name=name)
    client = Client(headers={"authorization": f"Bearer {secret}"})
    return lambda path, status=200, **query: answered(client.get(path, query), status)


def answered(response: Any, status: int = 200) -> Any:
    """Return the JSON of an answer that has this status and is not to be kept."""
    assert response.status_code == status, response.content[:500]
    assert response["Cache-Control"] == "no-store"
    assert response["Content-Type"] == ("application/json" if status == 200 else "application/problem+json")
    content = response.json()
    assert status == 200 or content["status"] == status
    return content


@pytest.fixture
def ask(db: None) -> Ask:
    """Return the function of a program that sees everything."""
    return program_of(make_user("robot", *ALL))


@pytest.fixture
def member(db: None) -> User:
    """Return a user with every permission to view, who belongs to acme."""
    user = make_user("member", *(name for name in ALL if name != "kwit.see_all_tenants"))
    Membership.objects.create(user=user, tenant="acme")
    return user
