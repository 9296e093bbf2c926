"""The admin is the whole site."""

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

admin.site.site_title = admin.site.site_header = "Kwit"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
