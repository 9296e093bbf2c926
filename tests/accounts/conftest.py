"""These tests need other settings than the rest; ``tests/config/test_accounts.py`` runs them in a process."""

from django.conf import settings

from tests.browser.conftest import browser, open_page  # noqa: F401

collect_ignore_glob = [] if settings.ACCOUNTS else ["test_*.py"]
