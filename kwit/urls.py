"""URLs for programs: ``path("", include("kwit.urls"))``."""

from django.urls import path, re_path

from .api import views as api
from .probes import health, metrics

app_name = "kwit"
urlpatterns = [
    re_path(r"^api/v1/?$", api.index, name="api-index"),
    path("api/v1/openapi.json", api.openapi, name="api-openapi"),
    re_path(r"^api/v1/(?P<name>[a-z-]+)/?$", api.listing),
    path("api/v1/<slug:name>", api.listing, name="api-list"),
    path("api/v1/<slug:name>/<path:key>", api.one, name="api-one"),
    re_path(r"^api/", api.unknown),
    path("healthz", health.both, name="healthz"),
    path("healthz/live", health.live, name="healthz-live"),
    path("healthz/ready", health.ready, name="healthz-ready"),
    path("metrics", metrics.scrape, name="metrics"),
]
