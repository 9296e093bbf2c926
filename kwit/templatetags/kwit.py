"""``{% kwit_panels %}``: the dashboard, for the admin's index or any other page."""

from typing import Any

from django import template
from django.utils import timezone

register = template.Library()


@register.inclusion_tag("kwit/panels.html", takes_context=True)
def kwit_panels(context: dict[str, Any]) -> dict[str, Any]:
    """Build every panel that the user may see; problems are listed above all panels."""
    # Imported here: Django loads every app's tags for any template, also for that of a mail.
    from ..admin.dashboard import build, panels_for
    from ..admin.time_ranges import PARAMETER, RANGES, get_time_range
    from ..people.tenants import sees_all_for_lack_of_tenants, tenants_of

    request = context["request"]
    window = get_time_range(request.GET, now=timezone.now())
    built = [(panel, build(panel, request, window)) for panel in panels_for(request.user)]
    return {
        "parameter": PARAMETER,
        "ranges": [(one.name, one.label, one == window.range) for one in RANGES],
        # Zeros for lack of rows are no good news.
        "sees_nothing": tenants_of(request.user) == frozenset(),
        "has_no_tenants": sees_all_for_lack_of_tenants(request.user),
        "findings": [finding for _, made in built for finding in made.findings],
        "panels": [
            {"name": panel.name, "title": panel.title, "template": panel.template, "panel": made.context}
            for panel, made in built
        ],
        "now": window.now,
        "window": window,
    }
