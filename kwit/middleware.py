"""On every page, Django's own included: a strict Content-Security-Policy, and 503 when a database is out of reach."""

import logging
from collections.abc import Callable
from http import HTTPStatus

from django.conf import settings
from django.db import Error as DatabaseProblem
from django.db import InterfaceError, OperationalError, connections
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

log = logging.getLogger(__name__)
HEADER = "Content-Security-Policy"
#: Nothing but this site's own files; no inline script or style, no frame around the site.
STRICT = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

#: For a foreign document such as the HTML body of a mail: no script, no form and no request to anywhere, so that
#: nobody learns that it was viewed. The document gets an origin of its own, also when it is opened outside its frame.
SANDBOX = "; ".join(
    (
        "sandbox",
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'self'",
    )
)


def sandboxed(html: str) -> HttpResponse:
    """Return a foreign document that only this site's pages may frame, under a policy of its own."""
    return HttpResponse(html, headers={HEADER: SANDBOX, "X-Frame-Options": "SAMEORIGIN"})


class StrictPolicyMiddleware:
    """
    Send the policy with every answer that has none of its own.

    Django has a middleware for this from 6.0 on; 5.2 has none, and one that serves both is ten lines. A site whose
    forms lead elsewhere (single sign-on) names those origins in ``DESK_FORM_TARGETS``.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        targets = " ".join(("form-action 'self'", *getattr(settings, "DESK_FORM_TARGETS", ())))
        self.policy = STRICT.replace("form-action 'self'", targets)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer, with the policy."""
        response = self.get_response(request)
        response.headers.setdefault(HEADER, self.policy)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer 503 when a database cannot be reached; every other trouble stays what it is."""
        if settings.DEBUG or not isinstance(exception, (OperationalError, InterfaceError)) or all_answer():
            return None
        log.error("a database does not answer: %s", exception, exc_info=exception)
        # Without the request: who is signed in may stand in the database that does not answer.
        page = render_to_string("kwit/unavailable.html")
        return HttpResponse(page, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "30"})


def all_answer() -> bool:
    """Whether there is a connection to each database, or one can be made."""
    try:
        for connection in connections.all():
            connection.ensure_connection()
    except DatabaseProblem:
        return False
    return True
