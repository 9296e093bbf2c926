"""System checks of ``settings.KWIT``."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured

from .conf import kwit_settings
from .environment import check_environment


@register("kwit")
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """E001: a setting of KWIT is unknown or has the wrong type."""
    try:
        kwit_settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="See docs/reference-api.md for names, types and defaults.", id="kwit.E001")]
    return []


@register("kwit")
def check_variables(**kwargs: Any) -> list[CheckMessage]:
    """W003: a variable of the environment looks like a setting of KWIT, and the settings do not read it."""
    variables = {"KWIT_TOKEN_DAYS": "TOKEN_DAYS", "METRICS_TOKEN": "METRICS_TOKEN", "METRICS_OPEN": "METRICS_OPEN"}
    return check_environment("KWIT", variables, id="kwit.W003")


@register(Tags.security, deploy=True)
def check_policy(**kwargs: Any) -> list[CheckMessage]:
    """W004: no middleware protects the pages."""
    if "kwit.middleware.StrictPolicyMiddleware" in settings.MIDDLEWARE:
        return []
    hint = "Add kwit.middleware.StrictPolicyMiddleware behind SecurityMiddleware."
    return [Warning("Kwit's pages have no Content-Security-Policy", hint=hint, id="kwit.W004")]


@register(Tags.security, deploy=True)
def check_token_days(**kwargs: Any) -> list[CheckMessage]:
    """W005: API tokens may live for ever."""
    try:
        is_endless = kwit_settings().TOKEN_DAYS == 0
    except ImproperlyConfigured:
        return []  # E001 says so
    hint = "Set TOKEN_DAYS to the days after which programs get a new one."
    return [Warning("API tokens have no limit of time", hint=hint, id="kwit.W005")] if is_endless else []


@register(Tags.security, deploy=True)
def check_metrics_open(**kwargs: Any) -> list[CheckMessage]:
    """W002: everybody may read /metrics."""
    try:
        is_open = kwit_settings().METRICS_OPEN
    except ImproperlyConfigured:
        return []  # E001 says so
    hint = "Set METRICS_TOKEN instead, unless nobody but Prometheus reaches the address."
    return [Warning("METRICS_OPEN lets anybody read /metrics", hint=hint, id="kwit.W002")] if is_open else []
