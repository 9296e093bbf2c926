"""The pages inside a host site whose theme knows nothing of Django's: its frame, its colours, none of its variables."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from notify.models import MailQueue
from tests.browser.chromium import axe_findings
from tests.browser.story import OPERATE, fill, make_user
from tests.factories import make_line
from tests.receipts.plain import cancel, target

pytestmark = pytest.mark.django_db(transaction=True)
Open = Callable[..., Page]
BASE = """{% load i18n static %}{% get_current_language as language %}<!DOCTYPE html>
<html lang="{{ language }}"><head><title>{{ title }}</title><meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="{% static "theme.css" %}">{% block extrastyle %}{% endblock %}
{% block extrahead %}{% endblock %}</head>
<body class="{% block bodyclass %}{% endblock %}"><div id="frame-of-the-theme">Shop</div>
{% block breadcrumbs %}{% endblock %}<main id="content">{% block content_title %}{% endblock %}
{% block content %}{% endblock %}{% block sidebar %}{% endblock %}</main></body></html>"""
COLOURS = {
    "dark": "body { background: #10131a; color: #e8e8e8 } a { color: #9cc9ff }",
    "light": "body { background: #fffdf5; color: #222 } a { color: #0a4a8f }",
}


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_pages_are_readable_in_a_theme_without_djangos_colours(
    open_page: Open, settings: Any, tmp_path: Path, scheme: str
) -> None:
    (tmp_path / "admin").mkdir()
    (tmp_path / "admin" / "base.html").write_text(BASE)
    (tmp_path / "theme.css").write_text(COLOURS[scheme])
    templates = copy.deepcopy(settings.TEMPLATES)
    templates[0]["DIRS"] = [tmp_path, *templates[0]["DIRS"]]
    page = open_page(make_user("olga", *OPERATE, "receipts.view_change"), color_scheme=scheme)
    settings.TEMPLATES = templates
    settings.STATICFILES_DIRS = [tmp_path, *settings.STATICFILES_DIRS]
    fill(passes=40, events=14)
    line = make_line()
    cancel(target(line), change_id="CHG-1")
    problems = []

    mail = MailQueue.objects.filter(state="blocked").latest("pk")
    for address in (
        "",
        "notify/runlog/",
        "notify/mailqueue/",
        f"notify/mailqueue/{mail.pk}/change/",
        "receipts/change/",
    ):
        page.goto(f"/admin/{address}")
        expect(page.locator("#frame-of-the-theme")).to_be_visible()
        problems += [f"{address} {finding}" for finding in axe_findings(page)]

    assert problems == []
