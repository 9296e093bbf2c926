"""
Any mail backend of Django: EMAIL_BACKEND, or an entry of MAILERS; so that django-anymail works.

A backend says less than a server: what it returns counts for the whole mail, except where it reports per recipient.
"""

import contextlib
import smtplib
from collections.abc import Callable, Sequence
from typing import Any

from django.apps import apps
from django.core.mail import EmailMultiAlternatives

from ..addresses import wire_address
from ..errors import ChannelDown
from ..models import AttemptOutcome
from .base import Email, Reply, Result, own_reply, same_for_all
from .replies import error_text, is_channel_trouble, is_mailbox_gone, parse_reply, verdict

#: What django-anymail says of a recipient (its documentation, "Tracking sent mail", version 13).
ANYMAIL_REFUSED = frozenset({"invalid", "rejected", "failed"})
#: The name under which a service keeps which mail it was.
REPORT_METADATA = "kwit_report"
#: The HTTP statuses of "slow down" and of trouble on the other side.
HTTP_TOO_MANY, HTTP_SERVER_ERROR = 429, 500


class BackendTransport:
    """Sends through a Django mail backend."""

    name = "backend"

    def __init__(self, make_connection: Callable[[], Any]) -> None:
        self.make_connection = make_connection
        self.connection: Any = None

    def open(self) -> None:
        """Make sure of a connection. Raises: ChannelDown."""
        if self.connection is not None:
            return
        connection = self.make_connection()
        try:
            connection.open()
        except (OSError, smtplib.SMTPException) as error:
            raise ChannelDown(f"cannot open the mail backend: {type(error).__name__}: {error_text(error)}") from error
        self.connection = connection

    def pack(self, email: Email) -> EmailMultiAlternatives:
        """Return Django's message, made once to see that it can be. Raises: what Django raises of a hostile value."""
        message = as_django(email)
        message.message()
        return message

    def announce(self, email: Email, packed: EmailMultiAlternatives) -> None:
        """A backend of Django takes whole mails only."""

    def send(self, email: Email, packed: EmailMultiAlternatives, *, give_up_at: float) -> Sequence[Result]:
        """
        Send one email; return what the backend lets us know.

        Raises: ChannelDown, and whatever an unknown backend raises.
        """
        self.open()
        try:
            count = self.connection.send_messages([packed])
        except smtplib.SMTPRecipientsRefused as error:
            return [refused(address, error.recipients) for address in email.recipients]
        except smtplib.SMTPResponseException as error:
            return self.answered(email, error)
        except OSError as error:  # also SMTPServerDisconnected: the connection broke at a place we cannot see
            self.close()
            return same_for_all(email.recipients, AttemptOutcome.UNCERTAIN, Reply(text=error_text(error)))
        except Exception as error:
            if not isinstance(getattr(error, "status_code", None), int):
                raise
            return http_answered(email, error)
        if count is None:
            silent = own_reply("backend_silent")
            return same_for_all(email.recipients, AttemptOutcome.UNCERTAIN, silent)
        if not count:
            said_no = own_reply("backend_sent_nothing")
            return same_for_all(email.recipients, AttemptOutcome.DEFERRED, said_no)
        return [accepted(address, packed) for address in email.recipients]

    def answered(self, email: Email, error: smtplib.SMTPResponseException) -> list[Result]:
        """Say what one answer for all recipients means. Raises: ChannelDown."""
        reply = parse_reply(error.smtp_code, error.smtp_error)
        if is_channel_trouble(reply) or isinstance(error, smtplib.SMTPAuthenticationError | smtplib.SMTPSenderRefused):
            self.close()
            raise ChannelDown(str(reply)) from error
        return same_for_all(email.recipients, verdict(reply), reply)

    def close(self) -> None:
        """Give the connection back."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with contextlib.suppress(OSError, smtplib.SMTPException):
                connection.close()


def as_django(email: Email) -> EmailMultiAlternatives:
    """Return the email as Django's message."""
    message = EmailMultiAlternatives(
        subject=email.subject,
        body=email.text,
        from_email=email.sender,
        # Who is neither shown in To nor in Cc gets it blindly; a retry is addressed to those who still have to get it.
        to=[wire_address(address) for address in email.recipients if address in email.to],
        cc=[wire_address(address) for address in email.recipients if address in email.cc],
        bcc=[wire_address(a) for a in email.recipients if a not in (*email.to, *email.cc)],
        reply_to=email.reply_to,
        headers=dict(email.headers),
    )
    if email.report_token and apps.is_installed("anymail"):
        # What django-anymail hands to the service, which returns the one in its bounces and the other in its events.
        if email.envelope_sender:
            message.envelope_sender = email.envelope_sender  # type: ignore[attr-defined]
        message.metadata = {REPORT_METADATA: email.report_token}  # type: ignore[attr-defined]
    for each in email.files:
        message.attach(each.name, each.content, each.content_type)
    if email.html:
        message.attach_alternative(email.html, "text/html")
    return message


def refused(address: str, answers: dict[str, tuple[int, bytes]]) -> Result:
    """Return what the server said of one of several recipients, all of whom it refused."""
    if wire_address(address) not in answers:
        return Result(address, AttemptOutcome.DEFERRED, own_reply("backend_gave_no_reason"))
    reply = parse_reply(*answers[wire_address(address)])
    return Result(address, verdict(reply), reply, is_gone=is_mailbox_gone(reply))


def http_answered(email: Email, error: Exception) -> list[Result]:
    """Say what an HTTP answer of a sending service means. Raises: ChannelDown."""
    status: int = error.status_code  # type: ignore[attr-defined]
    reply = Reply(status, "", error_text(error)[:2000])
    if status == HTTP_TOO_MANY or status in (401, 403):
        raise ChannelDown(str(reply)) from error
    if status >= HTTP_SERVER_ERROR:
        return same_for_all(email.recipients, AttemptOutcome.DEFERRED, reply)
    return same_for_all(email.recipients, AttemptOutcome.REFUSED, reply)


def accepted(address: str, message: EmailMultiAlternatives) -> Result:
    """Return the result of one recipient as far as a backend without error reports it."""
    status = getattr(message, "anymail_status", None)
    known = getattr(status, "recipients", {}).get(wire_address(address)) if status else None
    if known is not None and known.status in ANYMAIL_REFUSED:
        return Result(
            address, AttemptOutcome.REFUSED, Reply(text=f"{known.status}: {known.message_id or ''}".rstrip(": "))
        )
    text = f"{known.status}, message {known.message_id}" if known is not None else "taken by the mail backend"
    return Result(address, AttemptOutcome.SENT, Reply(text=text))
