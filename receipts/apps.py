from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class ReceiptsConfig(AppConfig):
    """Receipts for approved changes."""

    name = "receipts"
    verbose_name = _("Receipts")

    def ready(self) -> None:
        """Register the checks, and find every app's kinds of change."""
        from . import checks  # noqa: F401 - registers them
        from .sealing import watch  # noqa: F401 - registers its checks and its job

        autodiscover_modules("changes")
