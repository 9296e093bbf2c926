"""``/metrics`` in the text format of Prometheus."""

import hmac
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from ..api.authentication import identify, read_only, token_digest
from ..api.problems import not_found
from ..conf import kwit_settings
from ..people.tenants import tenants_of
from .meters import RECENT_S, Gauge, Histogram, Meter, MeterReading, gauge, meters

PERMISSION = "kwit.view_metrics"


@read_only
def scrape(request: HttpRequest) -> HttpResponse:
    """Return the metrics; without prometheus-client the URL answers 404."""
    if find_spec("prometheus_client") is None:
        raise not_found("Metrics need the package prometheus-client (the extra “metrics”).")
    admit(request)
    return as_text([read(meter) for meter in meters()])


def admit(request: HttpRequest) -> None:
    """
    Let a scraper in: by the site's own secret, by a setting, or as a user with the permission who sees every tenant.

    Raises: Refusal, PermissionDenied.
    """
    if kwit_settings().METRICS_OPEN or has_site_secret(request):
        return
    identify(request)
    # The figures are of all tenants together.
    if not request.user.has_perm(PERMISSION) or tenants_of(request.user) is not None:
        raise PermissionDenied


def has_site_secret(request: HttpRequest) -> bool:
    """Whether the request brings METRICS_TOKEN; the comparison takes the same time wherever they differ."""
    wanted, given = kwit_settings().metrics_digest, token_digest(request)
    return bool(wanted) and given is not None and hmac.compare_digest(wanted, given)


def read(meter: Meter) -> MeterReading:
    """Read a meter; a database that does not answer is a metric, and the others are still reported."""
    begun = time.monotonic()
    try:
        found = tuple(meter.read(timezone.now()))
    except (DatabaseError, InterfaceError):
        return MeterReading(meter.name, is_up=False, seconds=time.monotonic() - begun)
    return MeterReading(meter.name, is_up=True, seconds=time.monotonic() - begun, metrics=found)


def about_readings(readings: list[MeterReading]) -> list[Gauge]:
    """Return the metrics of the scrape itself."""
    up = [((one.meter,), float(one.is_up)) for one in readings]
    took = [((one.meter,), one.seconds) for one in readings]
    return [
        Gauge(name="kwit_up", about="1 when the part's database answered", labels=["part"], samples=up),
        Gauge(name="kwit_read_seconds", about="How long reading the part took", labels=["part"], samples=took),
        gauge("kwit_read_timestamp_seconds", "When this was read, by the web server's clock", time.time()),
        gauge("kwit_recent_window_seconds", "How far back figures with “recent” in their name look", RECENT_S),
    ]


def as_text(readings: list[MeterReading]) -> HttpResponse:
    """Return the readings in the format of Prometheus."""
    # Here and not above: the extra may be missing, and only this page needs it.
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Read(Collector):
        def collect(self) -> Iterator[Any]:
            """Yield the families."""
            metrics = [metric for each in readings for metric in each.metrics]
            yield from map(family_of, [*about_readings(readings), *metrics])

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Read())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def family_of(metric: Gauge | Histogram) -> Any:
    """Return a metric as a family of prometheus-client."""
    from prometheus_client.core import GaugeHistogramMetricFamily, GaugeMetricFamily

    if isinstance(metric, Gauge):
        found = GaugeMetricFamily(metric.name, metric.about, labels=metric.labels)
        for labels, value in metric.samples:
            found.add_metric([str(label) for label in labels], value)
        return found
    buckets = [(str(bound), float(number)) for bound, number in metric.buckets] + [("+Inf", float(metric.count))]
    # Not a plain histogram: this one falls, too, and rate() would take that for a restart.
    return GaugeHistogramMetricFamily(metric.name, metric.about, buckets=buckets, gsum_value=metric.sum_s)
