"""``manage.py doctor``."""

from typing import Any

from django.core.checks import ERROR, WARNING, CheckMessage, run_checks
from django.core.management.base import CommandError
from django.db import connections

from ...checks import DOCTOR, silent_database
from ..command import ReceiptsCommand


class Command(ReceiptsCommand):
    """Check that each database meets Kwit's guarantees."""

    help = "Check that each database meets Kwit's guarantees. Exit: 0, or 1 when a guarantee does not hold."
    requires_system_checks = ()

    def elsewhere(self, alias: str | None) -> str:
        """Say nothing here: notify.W004 and receipts.W036 are among the findings."""
        return ""

    def handle(self, *args: Any, **options: Any) -> None:
        aliases = [options["database"]] if options["database"] else list(connections)
        # Asked here, so that no app's check has to cope with a database that is not there.
        silent = {alias: found for alias in aliases if (found := silent_database(alias))}
        answering = [alias for alias in aliases if alias not in silent]
        messages = [*silent.values(), *run_checks(tags=[DOCTOR], include_deployment_checks=True, databases=answering)]
        findings = [self.finding(message) for message in messages]
        lines = [f"{one['severity']} {one['id']}: {one['about']}. To do: {one['what_to_do']}" for one in findings]
        self.print_result({"findings": findings}, *(lines or ["Nothing found."]))
        if errors := sum(message.level >= ERROR for message in messages):
            raise CommandError(f"{errors} findings break a promise.")

    def finding(self, message: CheckMessage) -> dict[str, str]:
        """Return a check's message as a finding."""
        severity = "error" if message.level >= ERROR else "warning" if message.level >= WARNING else "info"
        return {"id": message.id or "", "severity": severity, "about": message.msg, "what_to_do": message.hint or ""}
