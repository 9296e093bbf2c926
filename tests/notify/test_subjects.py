"""A subject filled into a translated pattern is the subject that Django renders."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from django.template import Context, Template
from django.utils import translation
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe

from notify.messages import subjects
from notify.messages.patterns import MARK, render_of
from notify.messages.subjects import Lines

SENTENCES = [
    "Order {{ number }}: {{ item }}",
    "{% load i18n %}{% blocktranslate trimmed %}Order {{ number }}, {{ item }}: new comment by {{ author }}"
    "{% endblocktranslate %}\n",
    "{% load i18n %}{% blocktranslate %}100 % of {{ item }}{% endblocktranslate %} and 5 %s of {{ item }}{{ item }}",
    "{% comment %}no{% endcomment %}{# no #}without values",
    "{{ item }}{{ missing }}{% load i18n %}{% blocktranslate %}{{ missing }}{% endblocktranslate %}",
]
OTHERS = [
    "{% if item %}yes{% else %}no{% endif %}",
    "{{ item|upper }}",
    "{{ item.0 }}",
    "{{ 'constant' }}",
    "{% load i18n %}{% translate 'New order' %}",
    "{% load i18n %}{% blocktranslate count n=qty %}one{% plural %}{{ n }}{% endblocktranslate %}",
    "{% load i18n %}{% blocktranslate with it=item|upper %}{{ it }}{% endblocktranslate %}",
    "{% load i18n %}{% blocktranslate context 'x' %}{{ item }}{% endblocktranslate %}",
    "{% load i18n %}{% blocktranslate asvar text %}{{ item }}{% endblocktranslate %}{{ text }}",
    "{{ _('Order') }}",
]
VALUES = [
    {"number": "PO-1", "item": "Śruba M8", "author": "田中 愛子", "qty": 1},
    {"number": 4711, "item": None, "author": True, "qty": 2},
    {"number": Decimal("1234.50"), "item": "100 %s %(item)s {{ item }} {% if %}", "author": "<b>&amp;</b>", "qty": 3},
    {"number": date(2026, 1, 31), "item": datetime(2026, 1, 31, 23, tzinfo=UTC), "author": 1.5, "qty": 4},
    {"number": mark_safe("<i>"), "item": lazystr("lazy"), "author": "", "qty": 5},
]


@pytest.mark.parametrize("language", ["en", "pl", "ja"])
@pytest.mark.parametrize("source", SENTENCES + OTHERS)
def test_a_template_gives_what_django_renders(source, language, settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    template = Template(source)

    with translation.override(language):
        # One render for all, as in a chunk: what it was made from must not stick.
        render = render_of(template, VALUES[0])
        made = [render(values) for values in VALUES]

        assert made == [template.render(Context(values, autoescape=False)) for values in VALUES]


@pytest.mark.parametrize(("source", "is_fast"), [(s, True) for s in SENTENCES] + [(s, False) for s in OTHERS])
def test_only_sentences_are_filled_in(source, is_fast, monkeypatch):
    template = Template(source)
    render = render_of(template, VALUES[0])
    monkeypatch.setattr(Template, "render", lambda *_: "by Django")

    assert (render(VALUES[0]) != "by Django") == is_fast


def test_a_template_that_has_the_mark_itself_is_rendered_by_django():
    template = Template(f"{MARK}odd{MARK} {{{{ item }}}}")

    assert render_of(template, {"item": "x"})({"item": "y"}) == f"{MARK}odd{MARK} y"


def test_a_value_that_has_the_mark_stays_as_it_is():
    assert render_of(Template("{{ item }}!"), {"item": "x"})({"item": f"{MARK}item{MARK}"}) == f"{MARK}item{MARK}!"


def test_a_translation_that_cannot_be_filled_in_falls_back_as_in_django(monkeypatch):
    template = Template("{% load i18n %}{% blocktranslate %}Order {{ item }}{% endblocktranslate %}")
    real = translation.gettext
    monkeypatch.setattr(
        translation, "gettext", lambda text: "Zamówienie %(oops)s" if translation.get_language() == "pl" else real(text)
    )

    with translation.override("pl"):
        assert render_of(template, {"item": "x"})({"item": "y"}) == "Order y"


def test_a_line_is_one_line_of_at_most_255_units(monkeypatch):
    monkeypatch.setattr(subjects, "compile_or_load", lambda source, name: Template("a {{ item }}\n"))

    lines = Lines()

    assert lines.render("x", {"item": "b\r\nBcc: c"}) == "a b Bcc: c"
    assert len(lines.render("x", {"item": "ż" * 300})) == 255
