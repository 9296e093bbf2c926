from django.apps import AppConfig


class KwitConfig(AppConfig):
    """What the engines' admin pages share."""

    name = "kwit"
    verbose_name = "Kwit"

    def ready(self) -> None:
        """Register the checks."""
        from . import checks  # noqa: F401
