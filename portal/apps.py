from django.apps import AppConfig


class PortalConfig(AppConfig):
    """A sample supplier portal: orders, lines, advices, comments."""

    name = "portal"
    verbose_name = "Supplier portal"
