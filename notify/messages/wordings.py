"""What people have written in place of a kind's files, per language: versions that never change, the newest counts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.template import Template, TemplateSyntaxError
from django.template.exceptions import TemplateDoesNotExist
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from ..models import MailQueue, Wording
from ..steps import Scope, Step, columns_of
from .bodies import Body, render_body
from .loading import try_template
from .names import names_of
from .sandbox import compile_source
from .subjects import Lines
from .values import ALWAYS, WORDING


@dataclass(frozen=True)
class Draft:
    """What a person has written; an empty part is the file's."""

    subject: str = ""
    text: str = ""
    html: str = ""


def current_wording(kind: str, language: str, *, using: str | None) -> Wording | None:
    """Return the version that counts for a kind in a language; None when the files do. One query."""
    found = Wording.objects.using(using).filter(kind=kind, language=language).order_by("-pk").first()
    return None if found is None or found.is_file else found


def has_wording(kind: str, *, using: str) -> bool:
    """Whether people have ever written for a kind. One query."""
    return Wording.objects.using(using).filter(kind=kind).exists()


@lru_cache(maxsize=256)
def get_wording(pk: int, using: str | None) -> Wording:
    """Return a version, which never changes. Raises: DoesNotExist."""
    return Wording.objects.using(using).get(pk=pk)


def wording_of(mail: MailQueue) -> Wording | None:
    """Return the version with which a mail was made; None for the files. Raises: DoesNotExist."""
    pk = mail.payload.get(WORDING) if isinstance(mail.payload, dict) else None
    return get_wording(pk, mail._state.db) if isinstance(pk, int) else None


def load_wordings(mails: Iterable[MailQueue]) -> None:
    """Read the versions of these mails now, so that rendering them later asks no database."""
    for mail in mails:
        if isinstance(mail.payload, dict) and WORDING in mail.payload:
            try:
                wording_of(mail)
            except Wording.DoesNotExist:
                continue  # rendering says so, at the mail that it is about


def render_subject(step: Step, values: Mapping[str, Any], draft: Draft | Wording | None, *, language: str) -> str:
    """Return a mail's subject. Raises: whatever a template or a value raises."""
    with translation.override(language):
        return Lines().render(f"notify/mail/{step.template}.subject.txt", values, source=source_of(draft))


def source_of(draft: Draft | Wording | None) -> str:
    """Return what a person has written as the subject; empty for the file's."""
    return draft.subject if draft is not None else ""


def render_draft(step: Step, draft: Draft, values: Mapping[str, Any], *, language: str) -> tuple[str, Body]:
    """Return subject and bodies as a draft makes them. Raises: whatever a template or a value raises."""
    subject = render_subject(step, values, draft, language=language)
    return subject, render_body(step.template or "", values, language=language, wording=draft)


def problems_of(step: Step, draft: Draft, samples: Sequence[Mapping[str, Any]], *, language: str) -> dict[str, str]:
    """Return, by part, why a draft cannot be saved; nothing when it can."""
    problems: dict[str, str] = {}
    known = known_names(step)
    for part in ("subject", "text", "html"):
        if not (source := getattr(draft, part)):
            continue
        try:
            unknown = sorted(names_of(compile_source(source)) - known)
        except (TemplateSyntaxError, RecursionError) as error:
            problems[part] = str(error)
        else:
            if unknown:
                problems[part] = _("There is no value called %s.") % ", ".join(unknown)
    has_html = try_template(f"notify/mail/{step.template}.body.html") is not None
    if has_html and bool(draft.text) != bool(draft.html):
        problems.setdefault(
            "html" if draft.text else "text",
            _("This kind has a text and an HTML body: write both, or the two would say different things."),
        )
    if problems:
        return problems
    for values in samples:
        try:
            subject, _body = render_draft(step, draft, values, language=language)
        except Exception as error:  # whatever a value raises
            return {"text": f"{type(error).__name__}: {error}"}
        if not subject:
            return {"subject": _("The subject is empty.")}
    return {}


def known_names(step: Step) -> set[str]:
    """Return the names that a wording may use."""
    columns = columns_of(step.events(Scope(now=timezone.now())))
    coalesced = {"events"} if step.coalesce else set()
    return ({*columns, *ALWAYS} - {"recipients", "language", "assignee"}) | coalesced


def file_sources(step: Step) -> Draft:
    """Return the files' own texts, for people to begin with."""
    found = {}
    for part, suffix in (("subject", "subject.txt"), ("text", "body.txt"), ("html", "body.html")):
        try:
            compiled = try_template(f"notify/mail/{step.template}.{suffix}")
        except (TemplateDoesNotExist, TemplateSyntaxError):
            compiled = None
        found[part] = compiled.source if isinstance(compiled, Template) else ""
    return Draft(**found)
