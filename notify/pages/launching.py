"""Starts a pass in a process of its own."""

from uuid import UUID

from desk.launching import start_command


def start_pass(pass_id: UUID, *, using: str) -> None:
    """Start ``notify_pass`` with this id and return at once. Raises: OSError when no process can be started."""
    start_command("notify_pass", "--json", "--pass-id", str(pass_id), "--database", using)
