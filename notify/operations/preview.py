"""What a mail looks like before, or after, it is sent; reads only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connections, router

from ..conf import conf
from ..delivery.email import make_email, recipients_of, render_alone, render_mail, render_together
from ..dialects import dialect_of
from ..errors import UnknownMail
from ..explain.unnotified import Inquiry, events_of
from ..messages.bodies import Body, render_body
from ..messages.builder import make_messages
from ..messages.values import template_values, thaw
from ..models import TOKEN_LENGTH, Control, MailQueue
from ..steps import Event, Step, columns_of, event_reader, reading_order, steps_of, supported_language


@dataclass(frozen=True)
class Preview:
    """One mail as its recipients get it; ``source`` says what it was made of."""

    source: str
    subject: str
    text: str
    html: str
    recipients: tuple[str, ...]
    language: str
    headers: Mapping[str, str]


def preview_mail(mail: MailQueue, *, using: str | None = None) -> Preview:
    """
    Return a queued mail as it was or would be sent.

    Raises: whatever a template or a value raises.
    """
    using, settings = using or router.db_for_read(MailQueue), conf()
    rows = MailQueue.objects.using(using).select_related("control")
    mail = rows.get(pk=mail.digest_of_id or mail.pk)
    others = list(rows.filter(digest_of=mail.pk).order_by("pk"))
    subject, body = "", render_mail(mail)
    if others:
        # What was sent is shown as it was: then the subject alone is made of them.
        bodies = [(other, Body("", "") if mail.message_text else render_alone(other)) for other in others]
        subject, body = render_together(mail, [(mail, body), *bodies])
    to = recipients_of(mail, settings).good
    letter = make_email(
        mail,
        body=body,
        part=0,
        to=to,
        recipients=to,
        at=mail.sent_at or mail.due_at,
        token=mail.message_token or "0" * TOKEN_LENGTH,
        conf=settings,
        digest_subject=subject,
    )
    return Preview(
        source=f"mail {mail.pk} ({mail.state})",
        subject=letter.subject,
        text=letter.text,
        html=letter.html,
        recipients=to,
        language=mail.language,
        headers=dict(letter.headers),
    )


def preview_key(
    *, kind: str, key: str, key2: str | None = None, language: str = "", using: str | None = None
) -> list[Preview]:
    """Return the mails of an event whose key is given as people write it. Raises: as ``preview_event``; WrongKey."""
    using = using or router.db_for_read(Control)
    [step] = steps_of([kind])
    number, number2 = step.get_key(key, key2, using=using)
    return preview_event(kind=kind, key=number, key2=number2, language=language, using=using)


def preview_event(
    *, kind: str, key: int, key2: int | None = None, language: str = "", using: str | None = None
) -> list[Preview]:
    """
    Return the mails of an event: the queued ones, or what a pass would queue now.

    Raises: UnknownStep; UnknownMail, when there is neither.
    """
    using = using or router.db_for_read(Control)
    [step] = steps_of([kind])
    asked = {"control__kind": kind, "control__key": key} | ({} if key2 is None else {"control__key2": key2})
    mails = list(MailQueue.objects.using(using).filter(**asked).order_by("pk"))
    if mails and not language:
        return [preview_mail(mail, using=using) for mail in mails]
    inquiry = Inquiry(using=using, conf=conf(), now=dialect_of(connections[using]).now(connections[using]))
    rows = step.only(events_of(step, inquiry), key=key, key2=key2)
    names = reading_order(columns_of(rows))
    read = event_reader(step.kind, names)
    events = [read(row) for row in rows.values_list(*names)[:10]]
    if not events:
        raise UnknownMail(f"event {kind} {key} has no mail, and it is no candidate: notify_explain says why")
    return [preview_candidate(step, event, language) for event in events]


def preview_example(kind: str, *, language: str = "") -> Preview:
    """Return the mail of a step's own example. Raises: UnknownStep; whatever a template raises."""
    [step] = steps_of([kind])
    event = Event(kind, 0, 0, "somebody@example.org", supported_language(language or None), "", step.example)
    return preview_candidate(step, event, language)


def preview_candidate(step: Step, event: Event, language: str) -> Preview:
    """Return the mail that an event would become."""
    spoken = supported_language(language) if language else event.language
    asked = event._replace(language=spoken)
    [message] = make_messages(step, [asked], fold_local_part=conf().FOLD_LOCAL_PART)
    if not step.template:
        raise UnknownMail(f"step {step.kind} sends no mail")
    values = template_values(
        thaw(json.loads(message.payload)), kind=event.kind, key=event.original_key or event.key, key2=event.key2
    )
    body = render_body(step.template, values, language=spoken)
    source = "would be queued" if message.state == "queued" else f"would be blocked: {message.problem}"
    return Preview(source, message.subject, body.text, body.html, message.recipients, spoken, {})
