"""
Callables for the sign-in throttle (django-axes): user name, client address, and the page of a locked user.

A lock looks the same for a right and a wrong password, and for a user who exists and one who does not.
"""

import ipaddress
import unicodedata
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.timesince import timesince

#: Characters of a name that are kept: the width of the throttle's column.
NAME_CHARS_MAX = 255
#: One customer's part of an IPv6 address (RFC 6177): whoever has it has 2^64 addresses to try from.
IPV6_PREFIX = 64


def client_name(request: HttpRequest, credentials: Mapping[str, Any] | None = None) -> str:
    """Return the user name, normalised so that another spelling gives no further attempts."""
    given = credentials if credentials is not None else request.POST
    name = str(given.get("username") or given.get("login") or "")
    return unicodedata.normalize("NFKC", name).casefold().strip().replace("\0", "")[:NAME_CHARS_MAX]


def client_address(request: HttpRequest) -> str | None:
    """
    Return where a request comes from: the address that the outermost proxy of ours has seen.

    Only the last ``PROXY_COUNT`` entries of X-Forwarded-For were written by our proxies; what stands before them is
    whatever the client has sent.
    """
    header = request.META.get("HTTP_X_FORWARDED_FOR", "")
    seen = [part.strip() for part in header.split(",")] if header else []
    count: int = settings.PROXY_COUNT
    given = seen[-count] if 0 < count <= len(seen) else request.META.get("REMOTE_ADDR", "")
    try:
        address = ipaddress.ip_address(given)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False).network_address)
    return str(address)


def locked_out(request: HttpRequest, response: Any, credentials: Any) -> HttpResponse:
    """Return the page after too many attempts, with the remaining time."""
    cool_off: timedelta = settings.AXES_COOLOFF_TIME
    now = timezone.now()
    context = {
        **admin.site.each_context(request),
        "wait": timesince(now - cool_off, now),
        "is_nav_sidebar_enabled": False,
    }
    page = render(request, "signing_in/locked.html", context, status=429)
    page.headers["Retry-After"] = str(int(cool_off.total_seconds()))
    page.headers["Cache-Control"] = "no-store"
    return page
