"""The address of unsubscribe links: ``path("", include("notify.urls"))``."""

from django.urls import path

from .unsubscribe import unsubscribe

app_name = "notify"
urlpatterns = [path("unsubscribe/<str:token>/", unsubscribe, name="unsubscribe")]
