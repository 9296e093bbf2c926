"""Register the admin pages; they need the app ``kwit``, without which the engine runs as before."""

from django.apps import apps

if apps.is_installed("kwit"):
    from .pages import api, dashboard, metrics, plans, receipts, reconcile, runs  # noqa: F401
