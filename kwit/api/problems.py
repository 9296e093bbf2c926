"""Errors of the API: application/problem+json (RFC 9457)."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse

from .encoding import encoded

CONTENT_TYPE = "application/problem+json"


class Refusal(Exception):
    """Why a request cannot be answered; becomes a problem document."""

    def __init__(self, status: HTTPStatus, detail: str, *, errors: Sequence[dict[str, str]] = (), **headers: str):
        super().__init__(detail)
        self.status, self.detail, self.errors = status, detail, errors
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def bad_request(*errors: tuple[str, str]) -> Refusal:
    """Return the refusal of a request from pairs (parameter, problem)."""
    listed = [{"where": where, "problem": problem} for where, problem in errors]
    return Refusal(HTTPStatus.BAD_REQUEST, "; ".join(f"{where}: {problem}" for where, problem in errors), errors=listed)


def not_found(detail: str = "There is nothing at this address.") -> Refusal:
    """Return the refusal of an address with nothing behind it, or nothing that this user may see."""
    return Refusal(HTTPStatus.NOT_FOUND, detail)


def problem_of(refusal: Refusal) -> HttpResponse:
    """Return the answer of a refusal."""
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": refusal.status.phrase,
        "status": refusal.status.value,
        "detail": refusal.detail,
    }
    if refusal.errors:
        content["errors"] = refusal.errors
    response = HttpResponse(encoded(content), content_type=CONTENT_TYPE, status=refusal.status)
    for name, value in refusal.headers.items():
        response.headers[name] = value
    return response
