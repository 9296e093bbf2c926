"""Actions on the wording of mails: save, return to the files, preview, send a test mail."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from email.utils import format_datetime, make_msgid
from typing import Any

from django.conf import settings
from django.db import router
from django.db.models import QuerySet
from django.utils import timezone

from ..conf import conf
from ..delivery.email import domain_of, sender_of
from ..errors import UnknownStep, UnusableWording
from ..messages.bodies import Body, values_of
from ..messages.values import freeze, template_values, thaw
from ..messages.wordings import Draft, current_wording, file_sources, problems_of, render_draft
from ..models import MailQueue, Wording
from ..steps import Step, registered, steps_of
from ..transports.base import Email, Result
from ..transports.factory import find_transport


def worded_steps() -> list[Step]:
    """Return the steps whose mails may be worded."""
    return [step for step in registered() if step.template is not None]


def get_step(kind: str) -> Step:
    """Return the step of a kind that sends mails. Raises: UnknownStep."""
    [step] = steps_of([kind])
    if step.template is None:
        raise UnknownStep(f"step {kind} sends no mail")
    return step


def languages() -> list[tuple[str, str]]:
    """Return the site's languages."""
    return list(settings.LANGUAGES)


def draft_of(step: Step, language: str, *, using: str | None = None) -> Draft:
    """Return what a person begins with: the version that counts, or the files' own texts."""
    found = current_wording(step.kind, language, using=using or router.db_for_read(Wording))
    return file_sources(step) if found is None else Draft(found.subject, found.text, found.html)


def samples_of(step: Step, mails: QuerySet[MailQueue]) -> dict[str, Mapping[str, Any]]:
    """Return the values that a draft is shown with: the step's example and the newest of these mails."""
    samples: dict[str, Mapping[str, Any]] = {}
    if step.example:
        values = {"event_at": timezone.now(), **step.example}
        thawed = thaw(json.loads(freeze(values)))
        samples["example"] = template_values(thawed, kind=step.kind, key=1, site_url=conf().SITE_URL.rstrip("/"))
    newest = mails.filter(control__kind=step.kind).select_related("control").order_by("-pk").first()
    if newest is not None and isinstance(newest.payload, dict) and newest.payload:
        samples[str(newest.pk)] = values_of(newest)
    return samples


def show_draft(
    step: Step, language: str, draft: Draft, samples: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[str, Body]]:
    """Return subject and bodies for each sample. Raises: UnusableWording."""
    check_draft(step, language, draft, list(samples.values()))
    return {name: render_draft(step, draft, values, language=language) for name, values in samples.items()}


def check_draft(step: Step, language: str, draft: Draft, samples: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a draft that does not render. Raises: UnusableWording, by part."""
    if problems := problems_of(step, draft, samples, language=language):
        raise UnusableWording(problems)


def save_wording(
    step: Step,
    language: str,
    draft: Draft,
    samples: Mapping[str, Mapping[str, Any]],
    *,
    author: str,
    using: str | None = None,
) -> Wording:
    """Make a draft the version that counts for mails prepared from now on. Raises: UnusableWording."""
    check_draft(step, language, draft, list(samples.values()))
    rows = Wording.objects.using(using or router.db_for_write(Wording))
    return rows.create(
        kind=step.kind, language=language, subject=draft.subject, text=draft.text, html=draft.html, author=author
    )


def restore_files(step: Step, language: str, *, author: str, using: str | None = None) -> Wording:
    """Let the files count again, as a version of its own."""
    rows = Wording.objects.using(using or router.db_for_write(Wording))
    return rows.create(kind=step.kind, language=language, is_file=True, author=author)


def send_test(
    step: Step,
    language: str,
    draft: Draft,
    samples: Mapping[str, Mapping[str, Any]],
    *,
    to: str,
    now: datetime,
    transport: Any = None,
) -> Result:
    """Send a draft, with the last of its samples, to the person who writes it. Raises: UnusableWording, ChannelDown."""
    shown = show_draft(step, language, draft, samples)
    if not shown:
        raise UnusableWording({"text": "there is neither an example nor a mail of this kind"})
    subject, body = list(shown.values())[-1]
    config = conf()
    sender = sender_of(config)
    email = Email(
        sender=sender,
        recipients=(to,),
        to=(to,),
        subject=f"[{step.kind} {language}] {subject}",
        text=body.text,
        html=body.html,
        headers=(
            ("Message-ID", make_msgid(domain=domain_of(sender) or "localhost")),
            ("Date", format_datetime(now)),
            ("Auto-Submitted", "auto-generated"),
        ),
    )
    way = transport or find_transport(config)
    way.open()
    try:
        [result] = way.send(email, way.pack(email), give_up_at=float("inf"))
    finally:
        way.close()
    return result
