"""Events of sending services, through django-anymail's own webhook views."""

import json

import pytest
from anymail.signals import tracking
from anymail.webhooks.mailgun import MailgunTrackingWebhookView
from anymail.webhooks.postmark import PostmarkTrackingWebhookView
from django.test import RequestFactory, override_settings

from notify.delivery import anymail
from notify.delivery.runner import deliver_due
from notify.models import Suppression
from notify.signing import Sent, sign_report
from notify.transports.django import BackendTransport
from tests.mails import make_mail, outcomes

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def listening():
    anymail.connect()
    yield
    tracking.disconnect(dispatch_uid="notify.delivery.anymail")


@pytest.fixture
def mail():
    found = make_mail(to=("ann@example.org",))
    found.attempts = 1
    found.save()
    return found


def postmark(event):
    """Hand one event of the shape that Postmark sends to anymail's view."""
    request = RequestFactory().post("/anymail/postmark/tracking/", json.dumps(event), content_type="application/json")
    with override_settings(ANYMAIL={"POSTMARK_SERVER_TOKEN": "t"}):
        view = PostmarkTrackingWebhookView.as_view()
        with pytest.warns(Warning, match="webhook"):
            assert view(request).status_code == 200


def event(kind, token, **fields):
    return {
        "RecordType": kind,
        "MessageID": "883953f4-6105-42a2-a16a-77a8eac79483",
        "Recipient": "ann@example.org",
        "Metadata": {"kwit_report": token},
        "DeliveredAt": "2026-01-31T08:00:00Z",
        "BouncedAt": "2026-01-31T08:00:00Z",
        **fields,
    }


def test_a_delivery_a_bounce_and_a_complaint_are_outcomes(mail, configure):
    configure(SUPPRESS_BOUNCED=True)
    token = sign_report(Sent(mail.pk, 0))
    hard = {"Type": "HardBounce", "Details": "smtp;550 5.1.1 no such user", "Email": "ann@example.org"}

    postmark(event("Delivery", token, Details="250 ok"))
    postmark(event("Bounce", token, **hard))
    postmark(event("Bounce", token, **hard))
    postmark(event("SpamComplaint", token, Type="SpamComplaint", Email="ann@example.org"))

    assert [what for _, what, _ in outcomes(mail)] == ["delivered", "bounced", "complained"]
    assert Suppression.objects.get().cause == "bounced"
    assert "no such user" in mail.tries.get(outcome="bounced").text


@pytest.mark.parametrize("token", ["", "1-0-aaaaaaaaaaaaaaaa", "²"])
def test_an_event_without_our_token_changes_nothing(mail, token):
    postmark(event("Bounce", token, Type="HardBounce", Email="ann@example.org"))

    assert outcomes(mail) == []


def test_an_event_that_says_nothing_of_delivery_changes_nothing(mail):
    postmark(event("Open", sign_report(Sent(mail.pk, 0)), ReceivedAt="2026-01-31T08:00:00Z"))

    assert outcomes(mail) == []


def test_a_signed_event_of_another_service(mail):
    import hashlib
    import hmac

    token = sign_report(Sent(mail.pk, 0))
    signature = {"timestamp": "1", "token": "x", "signature": hmac.new(b"k", b"1x", hashlib.sha256).hexdigest()}
    data = {
        "event": "failed",
        "severity": "permanent",
        "reason": "bounce",
        "id": "e1",
        "timestamp": 1_769_846_400.0,
        "recipient": "ann@example.org",
        "delivery-status": {"code": 550, "message": "5.1.1 no such user"},
        "message": {"headers": {"message-id": "m1@example.org"}},
        "user-variables": {"kwit_report": token},
    }
    request = RequestFactory().post(
        "/", json.dumps({"signature": signature, "event-data": data}), content_type="application/json"
    )
    with override_settings(ANYMAIL={"MAILGUN_API_KEY": "a", "MAILGUN_WEBHOOK_SIGNING_KEY": "k"}):
        assert MailgunTrackingWebhookView.as_view()(request).status_code == 200

    assert [what for _, what, _ in outcomes(mail)] == ["bounced"]


def test_what_a_service_is_given_tells_which_mail_it_was(mail, settings, configure, monkeypatch):
    configure(BOUNCE_ADDRESS="bounces@example.org")
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "anymail"]
    given = []

    class Backend:
        def open(self):
            pass

        def close(self):
            pass

        def send_messages(self, messages):
            given.extend(messages)
            return len(messages)

    deliver_due(transport=BackendTransport(Backend))

    [message] = given
    assert message.metadata == {"kwit_report": sign_report(Sent(mail.pk, 0))}
    assert message.envelope_sender == f"bounces+{sign_report(Sent(mail.pk, 0))}@example.org"
