"""
Who asks: a program with its token, or a person with a session; for addresses that only read.

Both have the permissions and tenants of their user. Tokens open nothing else: the pages do not know them.
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
#: What a database says that is not there, or not for the moment; of a wrong query it says something else.
SILENT = (OperationalError, InterfaceError)
Door = Callable[..., HttpResponse]


def reading(view: Door) -> Door:
    """Make an address of a view that only reads: methods, refusals as problem documents, nothing kept in a cache."""

    @csrf_exempt
    @login_not_required
    @wraps(view)
    def door(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # For programs, whatever language a browser has asked for.
        with translation.override("en"):
            try:
                response = by_method(view, request, *args, **kwargs)
            except Refusal as refusal:
                response = problem_of(refusal)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        patch_vary_headers(response, ("Authorization", "Cookie"))
        return response

    return door


def by_method(view: Door, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    """Answer GET and HEAD with the view. Raises: Refusal."""
    if request.method == "OPTIONS":
        return HttpResponse(status=HTTPStatus.NO_CONTENT, headers={"Allow": METHODS})
    if request.method not in ("GET", "HEAD"):
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "These addresses only read.", Allow=METHODS)
    try:
        return view(request, *args, **kwargs)
    except PermissionDenied as error:
        raise Refusal(HTTPStatus.FORBIDDEN, "Your user lacks the permission.") from error
    except Http404 as error:
        raise not_found() from error
    except BadRequest as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from error
    except SILENT as error:
        text = "A database does not answer."
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, Retry_After="10") from error


def identify(request: HttpRequest) -> None:
    """
    Set ``request.user`` to the token's user, or keep the session's.

    Raises: Refusal (401) when there is neither.
    """
    digest = presented(request)
    if digest is not None:
        token = find_token(digest, now=timezone.now())
        if token is None:
            # One answer for unknown, revoked, expired and whose user was shut out.
            text = "The token is not valid."
            raise Refusal(HTTPStatus.UNAUTHORIZED, text, WWW_Authenticate=f'{REALM}, error="invalid_token"')
        request.user = token.user
    elif not request.user.is_authenticated or not request.user.is_active:
        text = "Send a token (Authorization: Bearer …) or sign in."
        raise Refusal(HTTPStatus.UNAUTHORIZED, text, WWW_Authenticate=REALM)


@sensitive_variables()
def presented(request: HttpRequest) -> str | None:
    """
    Return the digest of the token in the Authorization header; None for another scheme, which a proxy may have set.

    The secret itself stays in here: an error page shows what every other function holds.
    """
    scheme, _, secret = request.headers.get("Authorization", "").strip().partition(" ")
    return digest_of(secret.strip()) if scheme.lower() == "bearer" else None


def for_staff(view: Door) -> Door:
    """Make a reading address of a view for those who may enter the admin pages."""

    @reading
    @wraps(view)
    def door(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        identify(request)
        if not admin.site.has_permission(request):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return door
