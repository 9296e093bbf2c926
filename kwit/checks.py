"""System checks of ``settings.KWIT``."""

from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured

from .conf import kwit_settings


@register("kwit")
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """E001: a setting of KWIT is unknown or has the wrong type."""
    try:
        kwit_settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="See docs/reference-api.md for names, types and defaults.", id="kwit.E001")]
    return []


@register(Tags.security, deploy=True)
def check_metrics_open(**kwargs: Any) -> list[CheckMessage]:
    """W002: everybody may read /metrics."""
    try:
        is_open = kwit_settings().METRICS_OPEN
    except ImproperlyConfigured:
        return []  # E001 says so
    hint = "Set METRICS_TOKEN instead, unless nobody but Prometheus reaches the address."
    return [Warning("METRICS_OPEN lets anybody read /metrics", hint=hint, id="kwit.W002")] if is_open else []
