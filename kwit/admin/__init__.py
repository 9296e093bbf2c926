"""Read-only admin pages and their parts; importing the package registers kwit's own pages, as Django's admin asks."""

from ..commands import is_recurring_command

if not is_recurring_command():
    from . import records  # noqa: F401
