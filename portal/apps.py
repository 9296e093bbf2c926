from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class PortalConfig(AppConfig):
    """A sample supplier portal: orders, lines, advices, comments."""

    name = "portal"
    verbose_name = _("Supplier portal")
