"""Read-only admin pages and their parts; importing the package registers kwit's own pages, as Django's admin asks."""

from . import records  # noqa: F401
