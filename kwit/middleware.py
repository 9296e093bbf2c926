"""Security headers of Kwit's pages, and status 503 when a database cannot be reached."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from django.conf import settings
from django.db import Error as DatabaseProblem
from django.db import InterfaceError, OperationalError, connections
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from .conf import kwit_settings

log = logging.getLogger(__name__)
HEADER = "Content-Security-Policy"
DJANGO_CSP = "django.middleware.csp.ContentSecurityPolicyMiddleware"
#: This site's own files only; no inline script or style, no frame around the site. In the form of Django's SECURE_CSP.
STRICT: Mapping[str, Sequence[str]] = {
    "default-src": ["'none'"],
    "script-src": ["'self'"],
    "style-src": ["'self'"],
    "img-src": ["'self'"],
    "font-src": ["'self'"],
    "connect-src": ["'self'"],
    "frame-src": ["'self'"],
    "form-action": ["'self'"],
    "base-uri": ["'none'"],
    "frame-ancestors": ["'none'"],
}

#: For a foreign document such as the HTML body of a mail: no script, no form and no request to anywhere, so that
#: nobody learns that it was viewed. The document gets an origin of its own, also when it is opened outside its frame.
SANDBOX: Mapping[str, Sequence[str]] = {
    "sandbox": [],
    "default-src": ["'none'"],
    "style-src": ["'unsafe-inline'"],
    "img-src": ["data:"],
    "form-action": ["'none'"],
    "base-uri": ["'none'"],
    "frame-ancestors": ["'self'"],
}


def policy_text(policy: Mapping[str, Sequence[str]]) -> str:
    """Return a policy as the value of its header."""
    return "; ".join(" ".join((name, *sources)) for name, sources in policy.items())


def sandboxed(html: str) -> HttpResponse:
    """Return a foreign document that only this site's pages may frame, under a policy of its own."""
    return HttpResponse(html, headers={HEADER: policy_text(SANDBOX), "X-Frame-Options": "SAMEORIGIN"})


class StrictPolicyMiddleware:
    """
    Protect Kwit's pages, or with ``KWIT = {"STRICT_SITE": True}`` every page of the site.

    Adds the policy and ``Cache-Control: no-store`` to each response that has none of its own. Where Django's own
    ``ContentSecurityPolicyMiddleware`` (Django 6) is installed, the policy is handed to it instead of written here. A
    site whose forms lead to other origins (single sign-on) names them in ``KWIT["FORM_TARGETS"]``.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        given = kwit_settings()
        self.is_for_site = given.STRICT_SITE
        self.policy = {**STRICT, "form-action": ["'self'", *given.FORM_TARGETS]}
        self.is_left_to_django = DJANGO_CSP in settings.MIDDLEWARE

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Return the response, with its headers."""
        response = self.get_response(request)
        if self.is_for_site or is_kwit_page(request):
            if not response.has_header("Cache-Control"):
                response.headers["Cache-Control"] = "no-store"
            if not response.has_header(HEADER) and not hasattr(response, "_csp_config"):
                if self.is_left_to_django:
                    response._csp_config = self.policy  # type: ignore[attr-defined]
                else:
                    response.headers[HEADER] = policy_text(self.policy)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer 503 on a protected page when a database cannot be reached; other errors stay what they are."""
        if settings.DEBUG or not (self.is_for_site or is_kwit_page(request)):
            return None
        if not isinstance(exception, (OperationalError, InterfaceError)) or all_answer():
            return None
        log.error("a database does not answer: %s", exception, exc_info=exception)
        # Without the request: its user may stand in the database that does not answer.
        page = render_to_string("kwit/unavailable.html")
        return HttpResponse(page, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "30"})


def is_kwit_page(request: HttpRequest) -> bool:
    """Whether the address belongs to ``kwit.urls`` or to an admin class that is a ``ReadOnlyAdmin``."""
    match = request.resolver_match
    if match is None:
        return False
    # The admin wraps its views by functools.wraps; at the end stands the bound method of the admin class.
    owner = getattr(inspect.unwrap(match.func), "__self__", None)
    return "kwit" in match.app_names or getattr(owner, "is_kwit_page", False) is True


def all_answer() -> bool:
    """Whether there is a connection to each database, or one can be made."""
    try:
        for connection in connections.all():
            connection.ensure_connection()
    except DatabaseProblem:
        return False
    return True
