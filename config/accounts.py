"""
What the optional accounts (django-allauth) ask of this site; imported by allauth itself, so only when it is on.

Nobody signs up. Whoever comes in by single sign-on is a user without any right until an administrator gives him some.
"""

import logging
from collections.abc import Callable
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from requests import RequestException

from .signing_in import client_address

logger = logging.getLogger(__name__)


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Sign-in by name and password; whoever guesses is kept out by the same throttle as without accounts."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Nobody signs up."""
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return where a request comes from, as the throttle sees it."""
        return client_address(request) or "unknown"

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """
        Leave wrong passwords to the throttle of the site, which is in the database and has a page of its own.

        allauth's own limit in the cache still holds for codes.
        """


class SocialAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Single sign-on makes a user, and nothing more."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Whoever the provider vouches for."""
        return True

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        """Save a new user without any right, whatever the provider says of him."""
        user = sociallogin.user
        user.is_staff = user.is_superuser = False
        return super().save_user(request, sociallogin, form)


class ProviderTroubleMiddleware:
    """Say that the provider does not answer, where allauth would raise what its HTTP client raised."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer."""
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the page; the error goes to the log."""
        if not isinstance(exception, RequestException):
            return None
        logger.error("The provider of single sign-on does not answer: %s", exception)
        return render(request, "signing_in/provider.html", status=503)
