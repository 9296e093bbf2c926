"""The pages' own words in pl and ja: complete, compiled, and with the same placeholders."""

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages.pofile import read_po

ROOT = Path(__file__).resolve().parent.parent
APPS = ("desk", "notify")
FUNCTIONS = {"_", "gettext", "gettext_lazy", "ngettext"}
TRANSLATE = re.compile(r'{% translate "([^"]+)"')
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]")
PAIRS = [(app, language) for app in APPS for language in ("pl", "ja")]


def messages_of(app: str) -> Iterator[str]:
    """Yield what an app marks for translation: literal arguments in Python, ``translate`` tags in templates."""
    for path in (ROOT / app).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value
    for path in (ROOT / app).rglob("*.html"):
        yield from TRANSLATE.findall(path.read_text())


def catalog(app: str, language: str) -> dict[str, list[str]]:
    with (ROOT / app / "locale" / language / "LC_MESSAGES" / "django.po").open("rb") as file:
        found = {}
        for message in read_po(file, locale=None):
            key = message.id[0] if isinstance(message.id, tuple) else message.id
            if key:
                found[key] = list(message.string) if isinstance(message.string, tuple) else [message.string]
                assert not message.fuzzy, key
        return found


@pytest.mark.parametrize(("app", "language"), PAIRS)
def test_every_marked_message_is_translated(app: str, language: str) -> None:
    translated = {key for key, texts in catalog(app, language).items() if all(texts)}

    assert set(messages_of(app)) - translated == set()


@pytest.mark.parametrize(("app", "language"), PAIRS)
def test_a_translation_keeps_the_placeholders(app: str, language: str) -> None:
    wrong = [
        (key, text)
        for key, texts in catalog(app, language).items()
        for text in texts
        if sorted(PLACEHOLDER.findall(key)) != sorted(PLACEHOLDER.findall(text))
    ]

    assert wrong == []


@pytest.mark.parametrize(("app", "language"), PAIRS)
def test_what_is_compiled_is_what_is_written(app: str, language: str) -> None:
    path = ROOT / app / "locale" / language / "LC_MESSAGES" / "django.mo"
    with path.open("rb") as file:
        compiled = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]

    texts = {text for texts in catalog(app, language).values() for text in texts}
    assert {text for key, text in compiled.items() if key} == texts
