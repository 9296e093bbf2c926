"""Subject and bodies that people write on a page: tried before they are saved, with a history, in a sandbox."""

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.db.models import F, Value
from django.template import Context, TemplateSyntaxError, VariableDoesNotExist
from django.test import Client
from django.test.utils import CaptureQueriesContext

from kwit.people.tenants import ALL_TENANTS
from notify.delivery.runner import deliver_due
from notify.errors import UnusableWording
from notify.messages.sandbox import SOURCE_CHARS_MAX, compile_source
from notify.messages.wordings import Draft, known_names
from notify.models import MailQueue, Wording
from notify.operations.wordings import draft_of, restore_files, save_wording, send_test, show_draft
from notify.steps import Step
from notify.transports.memory import MemoryTransport
from portal.models import Comment
from tests.factories import NOW
from tests.notify.samples import do_pass, make_comments

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/admin/notify/wording/write/worded/en/"


class Worded(Step):
    kind = "worded"
    template = "worded"
    is_windowed = False
    example = {"author": "Aiko", "body": "When?"}

    def events(self, scope: Any) -> Any:
        return Comment.objects.values(
            "author",
            "body",
            key=F("pk"),
            event_at=F("created_at"),
            recipients=Value("ann@example.org"),
            language=F("author"),
        )


@pytest.fixture(autouse=True)
def step(add_step, write_template) -> Step:
    write_template("mail/worded.subject.txt", "File: {{ author }}")
    write_template("mail/worded.body.txt", "File says {{ body }}")
    add_step(Worded)
    return Worded()


@pytest.fixture
def writer() -> Client:
    client, user = Client(), User.objects.create_user("wanda", email="wanda@example.org", is_staff=True)
    codes = ("view_wording", "write_wording", "view_mailqueue", ALL_TENANTS.partition(".")[2])
    user.user_permissions.set(Permission.objects.filter(codename__in=codes))
    client.force_login(user)
    return client


def write(step: Step, language: str = "en", **parts: str) -> Wording:
    return save_wording(step, language, Draft(**parts), {}, author="wanda")


def deliver() -> list[Any]:
    transport = MemoryTransport()
    deliver_due(transport=transport)
    return transport.letters


def test_a_wording_stands_in_place_of_the_file_in_its_language_only(step):
    write(
        step,
        subject="Written: {{ author }}",
        text="{% if body %}It says {{ body }}{% endif %} at {{ event_at|date:'Y' }}",
    )
    for language in ("en", "pl"):
        make_comments(1, author=language, body="hi")

    do_pass()

    assert [(m.subject, m.text) for m in deliver()] == [
        ("Written: en", "It says hi at 2026\n"),
        ("File: pl", "File says hi\n"),
    ]


def test_an_empty_part_is_the_file_s(step):
    write(step, subject="Only the subject")
    make_comments(1, author="en", body="hi")
    do_pass()

    assert [(m.subject, m.text) for m in deliver()] == [("Only the subject", "File says hi\n")]


def test_a_queued_mail_keeps_the_version_it_was_made_with(step):
    write(step, subject="One", text="One")
    make_comments(1, author="en")
    do_pass()
    write(step, subject="Two", text="Two")

    assert [(m.subject, m.text) for m in deliver()] == [("One", "One\n")]


def test_back_to_the_files_is_a_version_too(step):
    write(step, subject="One")
    restore_files(step, "en", author="ben")
    make_comments(1, author="en")
    do_pass()

    assert deliver()[0].subject == "File: en"
    assert list(Wording.objects.order_by("pk").values_list("author", "is_file")) == [("wanda", False), ("ben", True)]
    assert draft_of(step, "en") == Draft("File: {{ author }}", "File says {{ body }}", "")


def test_delivery_reads_each_version_once_however_many_mails_it_made(step):
    write(step, text="Written")
    make_comments(20, author="en")
    do_pass()
    from notify.messages.wordings import get_wording

    get_wording.cache_clear()
    with CaptureQueriesContext(connection) as found:
        assert len(deliver()) == 20

    assert len([q for q in found if "notify_wording" in q["sql"]]) == 1


def test_the_preview_shows_the_wording_and_the_file(step):
    write(step, subject="Written", text="Written")
    [comment] = make_comments(1, author="en", body="hi")

    def shown(*words: str) -> str:
        out = StringIO()
        call_command("notify_preview", "worded", *words, stdout=out)
        return out.getvalue()

    for words in ((), (str(comment.pk),)):
        assert "Subject: Written" in shown(*words)
        assert "Subject: File: " in shown(*words, "--file")
    do_pass()
    assert "Subject: Written" in shown(str(comment.pk))
    assert "Subject: File: en" in shown(str(comment.pk), "--file")


@pytest.mark.parametrize(
    "source",
    [
        "{% include 'notify/mail/worded.body.txt' %}",
        "{% extends 'notify/mail/layout.html' %}",
        "{% load i18n %}",
        "{% debug %}",
        "{% autoescape off %}{{ body }}{% endautoescape %}",
        "{% csrf_token %}",
        "{{ body|safe }}",
        "{{ body|ljust:'999999999' }}",
        "{{ body|stringformat:'999999999s' }}",
        "{{ bodies|dictsort:'x' }}",
        "{{ body.__class__ }}",
        "{{ _body }}",
        "{% if %}",
        "x" * (SOURCE_CHARS_MAX + 1),
    ],
)
def test_what_the_sandbox_does_not_know_is_a_fault(source):
    with pytest.raises(TemplateSyntaxError):
        compile_source(source)


def test_a_dot_reads_mappings_and_lists_and_calls_nothing():
    called = []

    class Odd(dict):
        secret = "attribute"

        def method(self) -> str:
            called.append(1)
            return "called"

    values = {
        "d": {"a": {"b": 1}, "items": "key"},
        "l": [10, 20],
        "odd": Odd(key="value"),
        "text": "abc",
        "call": lambda: called.append(2),
    }
    source = (
        "{{ d.a.b }},{{ d.items }},{{ l.1 }},{{ odd.key }}|{{ odd.secret }}{{ odd.method }}{{ text.upper }}{{ call }}"
        "{{ d.a.keys }}{{ l.append }}{{ l.9 }}{% for x in l %}{{ forloop.counter }}{% endfor %}"
        "{% if text.upper %}no{% endif %}{% with t=text.upper %}{{ t }}{% endwith %}"
    )

    assert compile_source(source).render(Context(values)) == "1,key,20,value|12"
    with pytest.raises(VariableDoesNotExist):
        compile_source("{{ none|default:text.upper }}").render(Context(values | {"none": None}))
    assert called == []


def test_nesting_has_an_end():
    with pytest.raises(TemplateSyntaxError, match="nested too deeply"):
        compile_source("{% if x %}" * 700 + "{% endif %}" * 700)


@pytest.mark.parametrize("grow", ["a=a|add:a", "a=a|join:a"])
def test_no_filter_makes_values_of_any_size(grow):
    source = "{% with " + grow + " %}"
    compiled = compile_source(source * 25 + "{{ a|length }}" + "{% endwith %}" * 25)

    with pytest.raises(ValueError, match="more than 200000 characters"):
        compiled.render(Context({"a": "xxxx"}))


def test_html_escapes_values():
    assert compile_source("<b>{{ x }}</b>").render(Context({"x": "<i>"})) == "<b>&lt;i&gt;</b>"


@pytest.mark.parametrize(
    ("draft", "part", "said"),
    [
        (Draft(subject="{{ autor }}"), "subject", "no value called autor"),
        (Draft(text="{% include 'x' %}"), "text", "Invalid block tag"),
        (Draft(subject="{{ body|nothing }}"), "subject", "Invalid filter"),
        (Draft(subject="{% if body == 'x' %}x{% endif %}"), "subject", "subject is empty"),
        (Draft(subject="{{ body|slice:author|add:1|divisibleby:0 }}"), "text", "Error"),
        (Draft(text="{{ recipients }}"), "text", "no value called recipients"),
    ],
)
def test_what_does_not_render_is_not_saved(step, draft, part, said):
    samples = {"example": {"author": "Aiko", "body": "When?"}}

    with pytest.raises(UnusableWording) as refused:
        save_wording(step, "en", draft, samples, author="wanda")

    assert said in refused.value.problems[part]
    assert not Wording.objects.exists()


def test_a_kind_with_html_needs_both_bodies_or_none(step, write_template):
    write_template("mail/worded.body.html", "<p>{{ body }}</p>")

    with pytest.raises(UnusableWording):
        write(step, text="only text")
    write(step, text="both", html="<p>both</p>")
    make_comments(1, author="en")
    do_pass()

    assert [(m.text, m.html) for m in deliver()] == [("both\n", "<p>both</p>\n")]


def test_the_page_shows_the_example_and_a_real_event_and_saves_nothing(step, writer):
    make_comments(1, author="en", body="<real> event")
    do_pass()

    page = writer.post(URL, {"do": "show", "subject": "S {{ author }}", "text": "T {{ body }}"}).content.decode()

    assert "S Aiko" in page
    assert "T &lt;real&gt; event" in page
    for name in known_names(step):
        assert f"<code>{name}</code>" in page
    assert not Wording.objects.exists()


def test_the_page_saves_refuses_and_goes_back_with_a_history(step, writer):
    begun = writer.get(URL).content.decode()
    assert "File: {{ author }}" in begun
    refused = writer.post(URL, {"do": "save", "subject": "{{ autor }}"}).content.decode()
    assert "There is no value called autor." in refused
    assert not Wording.objects.exists()

    assert writer.post(URL, {"do": "save", "subject": "Mine {{ author }}"}).status_code == 302
    assert "Mine {{ author }}" in writer.get(URL).content.decode()
    assert writer.post(URL, {"do": "file"}).status_code == 302

    assert [(w.author, w.is_file, w.subject) for w in Wording.objects.order_by("pk")] == [
        ("wanda", False, "Mine {{ author }}"),
        ("wanda", True, ""),
    ]
    listed = writer.get("/admin/notify/wording/").content.decode()
    assert "Mine {{ author }}" in listed
    assert listed.count("wanda") >= 2
    first = Wording.objects.order_by("pk")[0]
    detail = writer.get(f"/admin/notify/wording/{first.pk}/change/").content.decode()
    assert f"version={first.pk}" in detail
    assert "Mine {{ author }}" in writer.get(URL, {"version": first.pk}).content.decode()


def test_the_page_needs_its_own_permission(step, victor):
    victor_user = User.objects.get(username="victor")
    victor_user.user_permissions.add(Permission.objects.get(codename="view_wording"))

    assert victor.get("/admin/notify/wording/").status_code == 200
    assert victor.get(URL).status_code == 403
    assert victor.post(URL, {"do": "file"}).status_code == 403
    assert "/write/" not in victor.get("/admin/notify/wording/").content.decode()


@pytest.mark.parametrize("path", ["nothing/en/", "worded/xx/"])
def test_another_kind_or_language_is_no_page(step, writer, path):
    assert writer.get(f"/admin/notify/wording/write/{path}").status_code == 404


def test_a_test_mail_goes_to_oneself_only(step, writer, mailoutbox):
    page = writer.post(URL, {"do": "test", "subject": "S {{ author }}", "text": "T {{ body }}"})

    assert page.status_code == 200
    assert "It was sent to wanda@example.org." in page.content.decode()
    [sent] = mailoutbox
    assert (sent.subject, sent.to) == ("[worded en] S Aiko", ["wanda@example.org"])
    assert sent.body == "T When?\n"
    assert not Wording.objects.exists()
    assert not MailQueue.objects.exists()


def test_a_test_mail_that_does_not_render_is_not_sent(step):
    transport = MemoryTransport()

    with pytest.raises(UnusableWording):
        send_test(step, "en", Draft(text="{{ nope }}"), {}, to="a@example.org", now=NOW, transport=transport)

    assert transport.letters == []


def test_a_draft_may_be_shown_without_any_event(step):
    assert show_draft(step, "en", Draft(subject="x"), {}) == {}
