from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class DeskConfig(AppConfig):
    """What the engines' admin pages share."""

    name = "desk"
    verbose_name = _("Desk")

    def ready(self) -> None:
        """Register the checks."""
        from . import checks  # noqa: F401
