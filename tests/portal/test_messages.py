"""Every subject and title of the portal in every language, from its step's example."""

from typing import Any

import pytest
from babel.messages.mofile import read_mo
from django.conf import settings
from django.template import Context, Engine
from django.template.loader import get_template
from django.utils import translation

from notify.messages.builder import make_alike
from notify.steps import RESERVED, Event, Scope, columns_of, registered
from tests import catalogs

MISSING = "[missing: %s]"
#: As the site's own engine, but a variable that a template names and an example lacks shows itself.
ENGINE = Engine(
    dirs=[str(settings.BASE_DIR / "templates")],
    libraries={"i18n": "django.templatetags.i18n"},
    string_if_invalid=MISSING,
)
LANGUAGES = [code for code, _ in settings.LANGUAGES]
PORTAL_STEPS = [step for step in registered() if type(step).__module__ == "portal.notifications"]
TEMPLATES = [
    pytest.param(name, step, id=f"{step.kind}-{name.split('.')[1]}")
    for step in PORTAL_STEPS
    for name in (
        f"notify/mail/{step.template}.subject.txt" if step.template else None,
        f"notify/task/{step.task}.title.txt" if step.task else None,
    )
    if name
]


def rendered(name: str, values: Any, language: str) -> str:
    """Return a template's text in one language."""
    with translation.override(language):
        return ENGINE.get_template(name).render(Context(dict(values), autoescape=False)).strip()


def texts(catalog: Any) -> dict[Any, Any]:
    """Return a catalog's translations without its header."""

    def hashable(text: Any) -> Any:
        return tuple(text) if isinstance(text, list | tuple) else text

    return {(hashable(message.id), message.context): hashable(message.string) for message in catalog if message.id}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("name", "step"), TEMPLATES)
def test_each_text_renders_with_every_value_of_its_example(name, step, language):
    text = rendered(name, step.example, language)

    assert "[missing" not in text
    assert len(text.splitlines()) == 1
    # Whoever reads it can tell which event it is about.
    identity = step.example.get("number") or step.example["order_number"]
    assert identity in text


@pytest.mark.parametrize(("name", "step"), TEMPLATES)
def test_each_text_differs_in_each_language(name, step):
    assert len({rendered(name, step.example, language) for language in LANGUAGES}) == len(LANGUAGES)


@pytest.mark.parametrize(("name", "step"), TEMPLATES)
def test_a_value_that_the_example_lacks_would_be_seen(name, step):
    """The positive control of the first test."""
    assert "[missing" in rendered(name, {}, "en")


@pytest.mark.parametrize("step", PORTAL_STEPS, ids=lambda step: step.kind)
def test_the_example_has_exactly_the_columns_of_the_events(step):
    columns = columns_of(step.events(Scope(now=None)))

    assert set(step.example) - {"tenant"} == set(columns) - set(RESERVED)
    assert "tenant" in columns


def test_the_four_kinds_run_in_the_order_that_is_promised():
    assert [step.kind for step in PORTAL_STEPS] == ["order", "rejected", "advice", "comment"]


def test_a_subject_in_japanese_reaches_the_message_unchanged():
    (step,) = [step for step in PORTAL_STEPS if step.kind == "order"]
    event = Event("order", 1, 0, recipients="aiko@example.org", language="ja", values=step.example)

    with translation.override("ja"):
        [message] = make_alike(step, [event], fold_local_part=True)

    assert message.subject == "新規注文 PO-4711: Deliver to gate 3"


@pytest.mark.parametrize("home", catalogs.HOMES, ids=lambda home: home.parent.name)
@pytest.mark.parametrize("language", ["ja", "pl"])
def test_a_catalog_has_a_translation_for_every_text_and_for_nothing_else(language, home):
    wanted = {
        (tuple(message.id) if isinstance(message.id, list) else message.id, message.context)
        for message in catalogs.extracted(home)
        if message.id
    }
    have = texts(catalogs.read(language, home))

    assert set(have) == wanted, "run: make messages"
    assert [message for message, translated in have.items() if not translated] == []
    assert [message.id for message in catalogs.read(language, home) if message.fuzzy and message.id] == []


@pytest.mark.parametrize("home", catalogs.HOMES, ids=lambda home: home.parent.name)
@pytest.mark.parametrize("language", ["ja", "pl"])
def test_a_translation_names_the_same_values_as_its_original(language, home):
    problems = [
        (message.id, list(message.check(catalogs.read(language, home)))) for message in catalogs.read(language, home)
    ]

    assert [problem for problem in problems if problem[0] and problem[1]] == []


@pytest.mark.parametrize("home", catalogs.HOMES, ids=lambda home: home.parent.name)
@pytest.mark.parametrize("language", ["ja", "pl"])
def test_the_compiled_catalog_is_that_of_its_text(language, home):
    with catalogs.po_path(language, home).with_suffix(".mo").open("rb") as file:
        assert texts(read_mo(file)) == texts(catalogs.read(language, home)), "run: make messages"


def test_there_is_a_catalog_for_each_language_but_the_original():
    assert [*catalogs.languages(), "en"] == sorted(LANGUAGES, key=lambda code: (code == "en", code))


@pytest.mark.parametrize("name", ["400.html", "403.html", "404.html"])
def test_the_pages_for_what_cannot_be_shown_speak_each_language(name):
    """As Django renders them: without a request when it has none."""
    pages = set()
    for language in LANGUAGES:
        with translation.override(language):
            pages.add(get_template(name).render())

    assert len(pages) == len(LANGUAGES)


def test_a_texts_translation_is_the_same_in_every_catalog():
    """Django merges them: of two translations one would win, for both places."""
    for language in ("ja", "pl"):
        seen: dict[Any, set[Any]] = {}
        for home in catalogs.HOMES:
            for key, text in texts(catalogs.read(language, home)).items():
                seen.setdefault(key, set()).add(text)

        assert len(seen) > 500
        assert {key: found for key, found in seen.items() if len(found) > 1} == {}
