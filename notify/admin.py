"""Register the admin pages; they need the app ``kwit``, without which the engine runs as before."""

from django.apps import apps

from kwit.commands import is_recurring_command

if apps.is_installed("kwit") and not is_recurring_command():
    from .pages import (  # noqa: F401
        api,
        channels,
        control,
        dashboard,
        deliveries,
        mails,
        metrics,
        runs,
        suppressions,
        tasks,
        wordings,
    )
