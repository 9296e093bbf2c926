"""
Authentication of the API by token or session, and the wrapper of all read-only endpoints.

Either has the permissions and tenants of its user. Tokens are valid for these endpoints only.
"""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone, translation
from django.utils.cache import patch_vary_headers
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables

from ..people.tokens import digest_of, find_token
from .problems import Refusal, not_found, problem_of

METHODS = "GET, HEAD, OPTIONS"
REALM = 'Bearer realm="kwit"'
#: Raised when a database is not reachable; a wrong query raises something else.
UNREACHABLE = (OperationalError, InterfaceError)
View = Callable[..., HttpResponse]


def read_only(view: View) -> View:
    """Make a read-only endpoint of a view: GET only, errors as problem documents, nothing cached."""

    @csrf_exempt
    @login_not_required
    @wraps(view)
    def endpoint(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # For programs: English, whatever the Accept-Language header says.
        with translation.override("en"):
            try:
                response = by_method(view, request, *args, **kwargs)
            except Refusal as refusal:
                response = problem_of(refusal)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        patch_vary_headers(response, ("Authorization", "Cookie"))
        return response

    return endpoint


def by_method(view: View, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    """Answer GET and HEAD with the view. Raises: Refusal."""
    if request.method == "OPTIONS":
        return HttpResponse(status=HTTPStatus.NO_CONTENT, headers={"Allow": METHODS})
    if request.method not in ("GET", "HEAD"):
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "These endpoints are read-only.", Allow=METHODS)
    try:
        return view(request, *args, **kwargs)
    except PermissionDenied as error:
        raise Refusal(HTTPStatus.FORBIDDEN, "Your user lacks the permission.") from error
    except Http404 as error:
        raise not_found() from error
    except BadRequest as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from error
    except UNREACHABLE as error:
        text = "A database does not answer."
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, Retry_After="10") from error


def identify(request: HttpRequest) -> None:
    """
    Set ``request.user`` to the token's user, or keep the session's.

    Raises: Refusal (401) when there is neither.
    """
    digest = token_digest(request)
    if digest is not None:
        token = find_token(digest, now=timezone.now())
        if token is None:
            # One answer for unknown, revoked, expired and inactive.
            text = "The token is not valid."
            raise Refusal(HTTPStatus.UNAUTHORIZED, text, WWW_Authenticate=f'{REALM}, error="invalid_token"')
        request.user = token.user
    elif not request.user.is_authenticated or not request.user.is_active:
        text = "Send a token (Authorization: Bearer …) or sign in."
        raise Refusal(HTTPStatus.UNAUTHORIZED, text, WWW_Authenticate=REALM)


@sensitive_variables()
def token_digest(request: HttpRequest) -> str | None:
    """
    Return the digest of the token in the Authorization header; None for another scheme, which a proxy may have set.

    The secret stays in this function: error pages show the variables of all others.
    """
    scheme, _, secret = request.headers.get("Authorization", "").strip().partition(" ")
    return digest_of(secret.strip()) if scheme.lower() == "bearer" else None


def staff_endpoint(view: View) -> View:
    """Make a read-only endpoint of a view for users who may enter the admin."""

    @read_only
    @wraps(view)
    def endpoint(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        identify(request)
        if not admin.site.has_permission(request):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return endpoint
