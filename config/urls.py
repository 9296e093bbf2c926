"""The admin, and the addresses for machines: /api/v1, /healthz, /metrics."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

admin.site.site_title = admin.site.site_header = "Kwit"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("desk.urls")),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
