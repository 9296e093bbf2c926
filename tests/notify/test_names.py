"""``manage.py check`` names the template and the line of a name that the step does not give."""

import pytest
from django.core.checks import WARNING
from django.template import Template, TemplateSyntaxError

from notify.checks import check_step
from notify.messages.names import ANY, Use, names_of, unknown_names
from notify.steps import registered
from tests.notify.samples import Remark


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("{{ a }} {{ b.c.d }} {{ 'text' }} {{ 1 }} {{ True }}", {"a", "b"}),
        ("{{ a|default:b|date:'j M' }}", {"a", "b"}),
        ("{% if a == b and not c.d %}{{ e }}{% elif f %}{{ g }}{% else %}{{ h }}{% endif %}", set("abcefgh")),
        ("{% for x, y in a.items %}{{ x }}{{ y }}{{ forloop.counter }}{% empty %}{{ x }}{% endfor %}", {"a", "x"}),
        ("{% for x in a %}{{ x }}{% endfor %}{{ x }}", {"a", "x"}),
        ("{% with m=n k=2 %}{{ m }}{{ k }}{% endwith %}{{ m }}", {"n", "m"}),
        ("{% load i18n %}{% blocktranslate %}{{ a }} and {{ b }}{% endblocktranslate %}", {"a", "b"}),
        (
            "{% load i18n %}{% blocktranslate with x=a count n=b trimmed %}{{ x }}{{ c }}{% plural %}{{ n }}{{ d }}"
            "{% endblocktranslate %}",
            set("abcd"),
        ),
        ("{% load i18n %}{% get_current_language as code %}{{ code }}{% translate 'x' as t %}{{ t }}", set()),
        ("{% now 'Y' as year %}{{ year }}{% widthratio a b 100 as part %}{{ part }}", {"a", "b"}),
        ("{% regroup a by b as c %}{% for x in c %}{{ x.grouper }}{% endfor %}", {"a"}),
        ("{% cycle a 'b' as row %}{{ row }}{% firstof c d 'e' %}{% filter upper %}{{ f }}{% endfilter %}", set("acdf")),
        ("{% url 'admin:index' a as where %}{{ where }}{% spaceless %}{{ b }}{% endspaceless %}", {"a", "b"}),
        ("{% comment %}{{ a }}{% endcomment %}{# {{ b }} #}{% verbatim %}{{ c }}{% endverbatim %}", set()),
        ("{% include a %}", {"a", ANY}),
    ],
)
def test_the_names_that_a_template_needs(source, names):
    assert names_of(Template(source)) == names


def test_names_are_found_through_extends_include_for_and_with(write_template):
    write_template(
        "mail/base.txt",
        "{{ in_base }}\n{% block a %}{{ overridden }}{% endblock %}{% block b %}{{ kept }}{% endblock %}",
    )
    write_template("mail/part.txt", "{{ given }}\n{{ missing }}")
    write_template(
        "mail/whole.txt",
        "{% extends 'notify/mail/base.txt' %}\n{{ never }}\n{% block a %}\n{% include 'notify/mail/part.txt' with"
        " given=x only %}{% for y in ys %}\n{{ y }}{{ z }}{% endfor %}{% endblock %}",
    )

    found = unknown_names("notify/mail/whole.txt", ["ys"])

    assert found == [
        Use("in_base", "notify/mail/base.txt", 1),
        Use("kept", "notify/mail/base.txt", 2),
        Use("missing", "notify/mail/part.txt", 2),
        Use("x", "notify/mail/whole.txt", 4),
        Use("z", "notify/mail/whole.txt", 5),
    ]


def test_a_block_shows_the_names_of_the_one_it_extends_only_with_super(write_template):
    write_template("mail/base.txt", "{% block a %}{{ below }}{% endblock %}")
    write_template("mail/with.txt", "{% extends 'notify/mail/base.txt' %}{% block a %}{{ block.super }}{% endblock %}")
    write_template("mail/without.txt", "{% extends 'notify/mail/base.txt' %}{% block a %}x{% endblock %}")

    assert [use.name for use in unknown_names("notify/mail/with.txt", [])] == ["below"]
    assert unknown_names("notify/mail/without.txt", []) == []


def test_a_template_that_includes_itself_ends(write_template):
    write_template("mail/self.txt", "{{ a }}{% if a %}{% include 'notify/mail/self.txt' %}{% endif %}")

    assert {use.name for use in unknown_names("notify/mail/self.txt", [])} == {"a"}


def warnings_of(step):
    return [(m.id, m.msg) for m in check_step(step) if m.level == WARNING and m.id == "notify.W008"]


class Misspelt(Remark):
    kind = "misspelt"
    template = "misspelt"
    task = "misspelt"


def test_check_names_template_line_and_name(write_template):
    write_template("mail/misspelt.subject.txt", "{{ author }} {{ autor }}")
    write_template(
        "mail/misspelt.body.txt", "{{ body }}\n{{ key }} {{ key2 }} {{ kind }} {{ site_url }} {{ event_at }}"
    )
    write_template("mail/misspelt.body.html", "\n\n{{ recipients }}")
    write_template("task/misspelt.title.txt", "{{ body }}")

    assert warnings_of(Misspelt()) == [
        ("notify.W008", "notify/mail/misspelt.subject.txt, line 1: no value is called 'autor'"),
        ("notify.W008", "notify/mail/misspelt.body.html, line 3: no value is called 'recipients'"),
    ]


def test_a_digest_s_own_templates_are_checked_too(write_template):
    write_template("mail/misspelt.subject.txt", "x")
    write_template("mail/misspelt.digest.subject.txt", "{{ count }} {{ kind }} {{ number }}")
    write_template("task/misspelt.title.txt", "x")
    step = type("Digested", (Misspelt,), {"digest": True})()

    assert [text for _id, text in warnings_of(step)] == [
        "notify/mail/misspelt.digest.subject.txt, line 1: no value is called 'number'"
    ]


def test_a_faulty_template_is_another_check_s_finding(write_template):
    write_template("mail/misspelt.subject.txt", "{% if %}")
    with pytest.raises(TemplateSyntaxError):
        unknown_names("notify/mail/misspelt.subject.txt", [])

    assert warnings_of(Misspelt()) == []


def test_the_portal_s_templates_use_no_unknown_name():
    assert [found for step in registered() for found in warnings_of(step)] == []
