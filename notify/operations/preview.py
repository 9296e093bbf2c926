"""Previews of a mail before or after it is sent; read-only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connections, router
from django.utils import timezone

from ..conf import conf
from ..delivery.email import make_email, recipients_of, render_alone, render_mail, render_together
from ..dialects import dialect_of
from ..errors import UnknownMail, UnusableAttachment
from ..explain.unnotified import Inquiry, events_of
from ..messages.bodies import Body
from ..messages.builder import make_messages
from ..messages.options import File, event_of, read_files
from ..models import TOKEN_LENGTH, Control, MailQueue
from ..steps import Event, Step, columns_of, event_reader, reading_order, step_of, steps_of, supported_language


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
    sender: str = ""
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    #: The name of each file, or why it cannot be sent.
    attachments: tuple[str, ...] = ()


def preview_mail(mail: MailQueue, *, using: str | None = None) -> Preview:
    """
    Return a queued mail as it was or would be sent.

    Raises: whatever a template or a value raises.
    """
    using = using or router.db_for_read(MailQueue)
    rows = MailQueue.objects.using(using).select_related("control")
    mail = rows.get(pk=mail.digest_of_id or mail.pk)
    others = list(rows.filter(digest_of=mail.pk).order_by("pk"))
    subject, body = "", render_mail(mail)
    if others:
        # What was sent is shown as it was: then the subject alone is made of them.
        bodies = [(other, Body("", "") if mail.message_text else render_alone(other)) for other in others]
        subject, body = render_together(mail, [(mail, body), *bodies])
    return preview_as_sent(mail, body, subject=subject, source=f"mail {mail.pk} ({mail.state})")


def preview_as_sent(mail: MailQueue, body: Body, *, subject: str, source: str) -> Preview:
    """Return a mail as delivery would send it; ``subject`` is that of a digest."""
    settings, problem = conf(), ""
    files: tuple[File, ...] = ()
    everybody = recipients_of(mail, settings).good
    step = step_of(mail.control.kind)
    try:
        files = read_files(step, mail, bytes_max=settings.ATTACHMENT_BYTES)
    except UnusableAttachment as error:
        problem = str(error)
    email = make_email(
        mail,
        body=body,
        part=0,
        to=everybody,
        recipients=everybody,
        at=mail.sent_at or mail.due_at,
        token=mail.message_token or "0" * TOKEN_LENGTH,
        conf=settings,
        digest_subject=subject,
        files=files,
    )
    replies = {"Reply-To": ", ".join(email.reply_to)} if email.reply_to else {}
    return Preview(
        source=source,
        subject=email.subject,
        text=email.text,
        html=email.html,
        recipients=email.to,
        language=mail.language,
        headers=replies | dict(email.headers),
        sender=email.sender,
        cc=email.cc,
        bcc=tuple(address for address in everybody if address not in (*email.to, *email.cc)),
        attachments=tuple(file.name for file in files) or ((problem,) if problem else ()),
    )


def preview_key(
    *,
    kind: str,
    key: str,
    key2: str | None = None,
    language: str = "",
    using: str | None = None,
    is_file: bool = False,
) -> list[Preview]:
    """Return the mails of an event whose key is given as people write it. Raises: as ``preview_event``; WrongKey."""
    using = using or router.db_for_read(Control)
    [step] = steps_of([kind])
    number, number2 = step.get_key(key, key2, using=using)
    return preview_event(kind=kind, key=number, key2=number2, language=language, using=using, is_file=is_file)


def preview_event(
    *,
    kind: str,
    key: int,
    key2: int | None = None,
    language: str = "",
    using: str | None = None,
    is_file: bool = False,
) -> list[Preview]:
    """
    Return the mails of an event: the queued ones, or what a pass would queue now.

    Raises: UnknownStep; UnknownMail, when there is neither.
    """
    using = using or router.db_for_read(Control)
    [step] = steps_of([kind])
    asked = {"control__kind": kind, "control__key": key} | ({} if key2 is None else {"control__key2": key2})
    mails = list(MailQueue.objects.using(using).filter(**asked).order_by("pk"))
    if mails and is_file:
        events = [event._replace(values=dict(event.values)) for event in map(event_of, mails)]
        return [preview_candidate(step, event, language, using=using, is_file=True) for event in events]
    if mails and not language:
        return [preview_mail(mail, using=using) for mail in mails]
    inquiry = Inquiry(using=using, conf=conf(), now=dialect_of(connections[using]).now(connections[using]))
    rows = step.only(events_of(step, inquiry), key=key, key2=key2)
    names = reading_order(columns_of(rows))
    read = event_reader(step.kind, names)
    events = [read(row) for row in rows.values_list(*names)[:10]]
    if not events:
        raise UnknownMail(f"event {kind} {key} has no mail, and it is no candidate: notify_explain says why")
    return [preview_candidate(step, event, language, using=using, is_file=is_file) for event in events]


def preview_example(kind: str, *, language: str = "", using: str | None = None, is_file: bool = False) -> Preview:
    """Return the mail of a step's own example. Raises: UnknownStep; whatever a template raises."""
    [step] = steps_of([kind])
    values = {"event_at": timezone.now(), **step.example}
    event = Event(kind, 0, 0, "somebody@example.org", supported_language(language or None), "", values)
    return preview_candidate(step, event, language, using=using, is_file=is_file)


def preview_candidate(
    step: Step, event: Event, language: str, *, using: str | None = None, is_file: bool = False
) -> Preview:
    """Return the mail that an event would become."""
    spoken = supported_language(language) if language else event.language
    asked = event._replace(language=spoken)
    [message] = make_messages(
        step,
        [asked],
        fold_local_part=conf().FOLD_LOCAL_PART,
        using=using or router.db_for_read(Control),
        is_file=is_file,
    )
    if not step.template:
        raise UnknownMail(f"step {step.kind} sends no mail")
    source = "would be queued" if message.state == "queued" else f"would be blocked: {message.problem}"
    now = timezone.now()
    mail = MailQueue(
        control=Control(kind=event.kind, key=event.key, key2=event.key2, original_key=event.original_key),
        template=step.template,
        subject=message.subject,
        recipients=list(message.recipients),
        language=spoken,
        payload=json.loads(message.payload),
        tenant=message.tenant,
        due_at=now,
        # Not the default of the database, which is an object as long as the row is not saved.
        message_token="",
    )
    return preview_as_sent(mail, render_alone(mail), subject="", source=source)
