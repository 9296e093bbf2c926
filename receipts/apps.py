from django.apps import AppConfig


class ReceiptsConfig(AppConfig):
    """Receipts for approved changes."""

    name = "receipts"
    verbose_name = "Receipts"
