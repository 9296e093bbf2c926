"""
Adapters, forms and addresses for the optional accounts (django-allauth); imported only when ``ACCOUNTS`` is on.

Nobody signs up. A user who comes from single sign-on has no permission until an administrator grants one. Pages for
mail addresses and for a new password by mail exist only with ``ACCOUNTS_MAIL``.
"""

import logging
from collections.abc import Callable
from typing import Any

from allauth.account import forms
from allauth.account import urls as account_urls
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress
from allauth.account.views import EmailView
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.urls import build_provider_urlpatterns
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, URLResolver, include, path
from django.utils.translation import gettext as _
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


class ResetPasswordForm(forms.ResetPasswordForm):  # type: ignore[misc]
    """Sends a link to verified addresses only: an unverified one may be anybody's."""

    def clean_email(self) -> str:
        """Find the active users who have verified the address and have a password to replace."""
        address: str = super().clean_email()
        verified = EmailAddress.objects.filter(email__iexact=address, verified=True, user__is_active=True)
        users = [one.user for one in verified.select_related("user")]
        self.users = [user for user in users if user.has_usable_password()]
        return address


class VerifiedEmailView(EmailView):  # type: ignore[misc]
    """A user's addresses, of which only a verified one can become the primary one."""

    def _action_primary(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        address = self._get_email_address(request)
        if address is not None and not address.verified:
            messages.error(request, _("Verify the address first."))
            return None
        return super()._action_primary(request, *args, **kwargs)


#: Pages by which an account can be entered through a mailbox.
MAIL_PAGES = frozenset(
    {
        *("account_email", "account_email_verification_sent", "account_confirm_email"),
        *("account_reset_password", "account_reset_password_done"),
        *("account_reset_password_from_key", "account_reset_password_from_key_done"),
    }
)
#: Never there: codes by mail, and a first password for a user of single sign-on, which an open session could set.
LEFT_OUT = frozenset(
    {
        *("account_set_password", "account_confirm_login_code", "account_request_login_code"),
        *("account_request_reauthentication_code", "account_confirm_reauthentication_code"),
    }
)


def urlpatterns() -> list[URLPattern | URLResolver]:
    """Return the addresses of the accounts."""
    left_out = LEFT_OUT if settings.ACCOUNTS_MAIL else LEFT_OUT | MAIL_PAGES
    own = [one for one in account_urls.urlpatterns if one.name not in left_out | {"account_email"}]
    if settings.ACCOUNTS_MAIL:
        own.append(path("email/", VerifiedEmailView.as_view(), name="account_email"))
    return [
        path("", include(own)),
        path("2fa/", include("allauth.mfa.urls")),
        path("3rdparty/", include("allauth.socialaccount.urls")),
        *build_provider_urlpatterns(),
    ]
