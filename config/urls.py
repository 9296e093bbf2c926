"""The admin with its sign-in, and the addresses for machines: /api/v1, /healthz, /metrics."""

from django.conf import settings
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

admin.site.site_title = admin.site.site_header = "Kwit"

urlpatterns: list[URLPattern | URLResolver] = []
if settings.ACCOUNTS:
    from allauth.account.decorators import secure_admin_login

    from . import accounts

    # The accounts' own sign-in asks for the second factor. Before ``admin.site.urls``, which keeps the view it finds.
    admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]
    urlpatterns += [path("accounts/", include(accounts.urlpatterns()))]
urlpatterns += [
    path("admin/", admin.site.urls),
    path("", include("notify.urls")),
    path("", include("kwit.urls")),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
