"""Compiled templates by name, and the contexts they are rendered with."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.template import Context, Template, TemplateDoesNotExist
from django.template.loader import get_template

from .sandbox import compile_source


@lru_cache(maxsize=256)
def cached_template(name: str) -> Template:
    """Return a compiled template."""
    compiled: Template = get_template(name).template  # type: ignore[attr-defined]
    return compiled


def template(name: str) -> Template:
    """Return a compiled template, read again each time while DEBUG is on."""
    return cached_template.__wrapped__(name) if settings.DEBUG else cached_template(name)


@lru_cache(maxsize=256)
def is_template(name: str) -> bool:
    """Whether there is a template of that name."""
    try:
        template(name)
    except TemplateDoesNotExist as error:
        if error.args[:1] == (name,):
            return False
        raise  # it is there, but what it extends or includes is not
    return True


def try_template(name: str) -> Template | None:
    """Return a compiled template, None when there is none of that name."""
    known = is_template.__wrapped__(name) if settings.DEBUG else is_template(name)
    return template(name) if known else None


def plain_text(values: Mapping[str, Any]) -> Context:
    """Return a context for plain text: a "<" in an order note is a "<" in the subject."""
    return Context(dict(values), autoescape=False)


def clear_cache() -> None:
    """Forget the compiled templates."""
    cached_template.cache_clear()
    is_template.cache_clear()


def compile_or_load(source: str, name: str) -> Template:
    """Return what a person wrote as a template, or the file's when that is nothing. Raises: TemplateSyntaxError."""
    return compile_source(source) if source else template(name)
