"""``manage.py cancel_batch``."""

from typing import Any

from ..command import BatchCommand


class Command(BatchCommand):
    """Cancel every row of a plan or none."""

    help = "Cancel every row of a plan or none. Exit: 0 applied now or before, 3 conflict, 4 invalid plan, 75 unknown."

    def handle(self, *args: Any, **options: Any) -> None:
        self.run("cancel", options)
