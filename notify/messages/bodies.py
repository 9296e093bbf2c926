"""Frozen values -> the text and the HTML of a mail, or of several in one digest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.template import Context
from django.utils import translation
from django.utils.safestring import mark_safe

from ..conf import conf
from ..models import MailQueue
from .loading import compile_or_load, plain_text, try_template
from .options import options_of
from .sandbox import compile_source
from .subjects import Lines
from .values import ALWAYS, template_values, thaw


@dataclass(frozen=True)
class Body:
    """The two bodies of a mail; ``html`` is empty for a kind without an HTML template."""

    text: str
    html: str


@dataclass(frozen=True)
class DigestItem:
    """One mail inside a digest."""

    subject: str
    text: str
    html: str


def render_body(name: str, values: Mapping[str, Any], *, language: str, wording: Any = None) -> Body:
    """
    Render ``notify/mail/<name>.body.txt`` and, where there is one, ``.body.html`` in a language.

    ``wording`` is what a person wrote in their place, a ``text`` and an ``html``; an empty one is the file's.

    Raises: whatever a template or a value raises.
    """
    with translation.override(language or settings.LANGUAGE_CODE):
        written_text, written_html = (wording.text, wording.html) if wording is not None else ("", "")
        text = compile_or_load(written_text, f"notify/mail/{name}.body.txt").render(plain_text(values))
        found = compile_source(written_html) if written_html else try_template(f"notify/mail/{name}.body.html")
        html = found.render(Context(dict(values))) if found else ""
    return Body(text.strip() + "\n", html.strip() + "\n" if html else "")


def values_of(mail: MailQueue) -> dict[str, Any]:
    """Return what the templates of a mail get: the values frozen in its row."""
    return values_with(mail, thaw(mail.payload))


def values_with(mail: MailQueue, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the templates of a mail get beside its event's values."""
    control = mail.control
    return template_values(
        values,
        kind=control.kind,
        key=control.original_key or control.key,
        key2=control.key2,
        site_url=options_of(mail).get("site_url") or conf().SITE_URL.rstrip("/"),
    )


def values_of_digest(leader: MailQueue) -> dict[str, Any]:
    """Return what the templates of a digest get of the mail that leads it, whose own values may be spoilt by now."""
    values = values_with(leader, thaw(leader.payload) if isinstance(leader.payload, dict) else {})
    return {name: values[name] for name in ALWAYS}


def render_digest(
    items: Sequence[tuple[str, Body]], *, name: str, language: str, values: Mapping[str, Any]
) -> tuple[str, Body]:
    """
    Render several mails as one; return its subject and bodies. A kind may have digest templates of its own.

    ``values`` are those of ``values_of_digest``.
    """
    own = f"{name}.digest" if try_template(f"notify/mail/{name}.digest.body.txt") else "digest"
    shown = [DigestItem(subject, body.text, mark_safe(body.html)) for subject, body in items]  # noqa: S308 - rendered
    whole = {**values, "items": shown, "count": len(shown)}
    with translation.override(language or settings.LANGUAGE_CODE):
        subject = Lines().render(f"notify/mail/{own}.subject.txt", whole)
    return subject, render_body(own, whole, language=language)
