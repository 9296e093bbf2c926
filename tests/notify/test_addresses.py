"""Recipients as other people's data has them: the good ones are served, the bad ones are named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notify.addresses import (
    ADDRESS_CHARS_MAX,
    SHOWN_CHARS_MAX,
    is_address,
    mailbox_key,
    parse_mailbox,
    parse_recipients,
    wire_address,
)
from notify.errors import WrongAddress


def good(given_recipients: Any, **options: Any) -> list[str]:
    return list(parse_recipients(given_recipients, **options).good)


def bad(given_recipients: Any) -> list[str]:
    return list(parse_recipients(given_recipients).bad)


@pytest.mark.parametrize(
    ("recipients", "served", "named"),
    [
        (["", "ok@example.org"], ["ok@example.org"], ["''"]),
        ([None], [], ["None"]),
        ([None, "ok@example.org"], ["ok@example.org"], ["None"]),
        ("a@example.org;", ["a@example.org"], []),
        ("a@example.org,b@example.org", ["a@example.org", "b@example.org"], []),
        (" a@example.org ; ; b@example.org ,", ["a@example.org", "b@example.org"], []),
        ("a@example.org b@example.org", [], ["'a@example.org b@example.org'"]),
        ("nobody; ok@example.org", ["ok@example.org"], ["'nobody'"]),
        (["a@example.org;b@example.org", 7], ["a@example.org", "b@example.org"], ["7"]),
        ('["a@example.org", null, ""]', ["a@example.org"], ["None", "''"]),
        ('["a@example.org"', [], ["'[\"a@example.org\"'"]),
        ({"to": "a@example.org"}, [], ["'to'"]),
        (42, [], ["42"]),
        (b"a@example.org", [], None),
    ],
)
def test_the_good_address_is_served_and_the_bad_one_is_named(recipients, served, named):
    """M5: recipients that are empty, missing or end in a separator."""
    assert good(recipients) == served
    if named is not None:
        assert bad(recipients) == named


@pytest.mark.parametrize("nobody", [None, "", "  ", ";", " , ;", [], "[]", ()])
def test_no_recipient_at_all_is_nobody_and_names_nothing(nobody):
    """M6: an empty or missing recipient."""
    assert good(nobody) == []
    assert bad(nobody) == []


@pytest.mark.parametrize(
    "text",
    [
        "Ann <ann@example.org>",
        '"Last, First" <ann@example.org>',
        "<ann@example.org>",
        '<a href="https://example.org">bot</a> <ann@example.org>',
        "ann@example.org (Ann; of sales)",
    ],
)
def test_a_display_name_is_dropped_or_the_whole_is_named_as_bad(text):
    """M2: a display name may hold anything, and nothing of it gets into a header."""
    found = parse_recipients(text)

    assert found.good in ((), ("ann@example.org",))
    assert found.good or found.bad


def test_plain_display_names_are_understood():
    assert good('"a, b; <c@example.org>" <ann@example.org>') == ["ann@example.org"]
    assert good("Ann <ann@example.org>") == ["ann@example.org"]
    assert good('"Last, First" <ann@example.org>; Bob <bob@example.org>') == ["ann@example.org", "bob@example.org"]


@pytest.mark.parametrize(
    "text",
    [
        "alice@example.org)bob@evil.example <carol@example.org>",
        "bob@evil.example\r\nBcc: x@example.org",
        "a@example.org\nb@example.org",
        "a@example.org\0",
        "a@b@example.org",
        "@example.org",
        "a@",
        "a@-example.org",
        "a\u202eb@example.org",
        "a@example.org\u200b",
    ],
)
def test_what_is_not_clearly_one_address_is_never_guessed(text):
    """M1 and M2 on the side of the address: nothing is injected, and no part of a broken text is mailed to."""
    found = parse_recipients(text)

    assert "x@example.org" not in found.good
    assert "bob@evil.example" not in found.good
    assert found.good == ()
    assert found.bad


def test_the_same_mailbox_is_served_once_and_the_first_spelling_wins():
    """M9: one delivery for two spellings of one address."""
    assert good(["OK@example.org", "ok@EXAMPLE.org", "ok@example.org"]) == ["OK@example.org"]
    assert good("ok@example.org;OK@example.org") == ["ok@example.org"]
    assert good(["ok@example.org", "ok@example.org;Ann <OK@Example.org>"]) == ["ok@example.org"]


def test_the_local_part_counts_with_its_case_where_the_site_says_so():
    """M9, with FOLD_LOCAL_PART off: the domain is still compared without case."""
    kept = good("ok@example.org;OK@example.org;ok@EXAMPLE.ORG", fold_local_part=False)

    assert kept == ["ok@example.org", "OK@example.org"]


def test_an_address_has_at_most_254_characters():
    domain = "@" + ".".join(["d" * 60] * 3) + ".org"

    assert is_address("a" * (ADDRESS_CHARS_MAX - len(domain)) + domain)
    assert not is_address("a" * (ADDRESS_CHARS_MAX - len(domain) + 1) + domain)


def test_a_bad_address_is_shown_shortened():
    (shown,) = bad("x" * 10_000)

    assert len(shown) <= SHOWN_CHARS_MAX + 2


ENDLESS = ["[" * 100_000, "(" * 100_000 + "@", '"' * 5001, "<" * 50_000, "a@b.example," * 3000]


def test_a_bad_entry_takes_no_good_one_with_it():
    found = parse_recipients("Ann <ann@example.org>; Bob <bob@>, carol@example.org")

    assert found.good == ("ann@example.org", "carol@example.org")
    assert found.bad == ("'bob@'",)


@pytest.mark.parametrize("text", ENDLESS, ids=["brackets", "comments", "quotes", "angles", "repeats"])
def test_endless_nesting_is_named_and_not_followed(text):
    found = parse_recipients(text)

    assert found.bad or found.good


WILD = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=80),
    st.text(st.sampled_from('ab@.;,<>"()[]\\: \r\n\0é\u202e\ud800'), max_size=40),
    st.emails(),
    st.none(),
    st.integers(),
)
RECIPIENTS = st.one_of(WILD, st.lists(WILD, max_size=5), st.lists(WILD, max_size=3).map(lambda v: json.dumps(v)))


@given(RECIPIENTS, st.booleans())
def test_nothing_raises_and_what_is_served_is_an_address(recipients, is_folding):
    found = parse_recipients(recipients, fold_local_part=is_folding)

    for address in found.good:
        assert is_address(address)
        assert address.isprintable()
        assert '"' in address or not set(address) & set(" ,;<>()")
    for shown in found.bad:
        assert shown.isprintable()
        shown.encode()
    assert len({address.casefold() for address in found.good}) == len(found.good) or not is_folding


@given(st.lists(st.emails(), min_size=1, max_size=5))
def test_lawful_addresses_are_served_as_they_are_written(addresses):
    plain = [address for address in addresses if is_address(address) and '"' not in address]

    found = parse_recipients(plain, fold_local_part=False)

    assert set(found.good) <= set(plain)
    assert not found.bad


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ann@bücher.example", "ann@xn--bcher-kva.example"),
        ("ann@BÜCHER.example", "ann@bücher.example"),
        ("ann@bu\u0308cher.example", "ann@b\u00fccher.example"),
        ("ann@XN--BCHER-KVA.example", "ann@bücher.example"),
        ("Ann@Example.ORG", "ann@example.org"),
        ("ann@example。org", "ann@example.org"),
    ],
)
def test_two_spellings_of_one_mailbox_are_one_recipient(one, other):
    assert mailbox_key(one, True) == mailbox_key(other, True)
    assert good([one, other]) == [one]
    assert wire_address(one).lower() == wire_address(other).lower()


def test_a_domain_is_not_taken_for_another_one_that_looks_alike():
    assert wire_address("ann@faß.de") == "ann@xn--fa-hia.de"
    assert mailbox_key("ann@faß.de", True) != mailbox_key("ann@fass.de", True)
    assert good(["ann@faß.de", "ann@fass.de"]) == ["ann@faß.de", "ann@fass.de"]


@pytest.mark.parametrize(
    "domain", ["a" * 64 + ".example", "☃\u200d.example", "ü" * 60 + ".example", "-ü.example", "\u0301a.example"]
)
def test_an_address_whose_domain_cannot_be_encoded_takes_no_good_one_with_it(domain):
    found = parse_recipients(["ok@example.org", f"ann@{domain}"])

    assert found.good == ("ok@example.org",)
    assert len(found.bad) == 1
    assert mailbox_key(f"ann@{domain}", True) == mailbox_key(f"ann@{domain}", True)


@pytest.mark.parametrize(
    ("sender", "name", "address"),
    [
        ("kwit@example.org", "", "kwit@example.org"),
        ("<kwit@example.org>", "", "kwit@example.org"),
        ("Kwit Desk <kwit@example.org>", "Kwit Desk", "kwit@example.org"),
        ('"Acme, Inc." <noreply@example.org>', "Acme, Inc.", "noreply@example.org"),
        ('"Ann \\"A\\"" <ann@example.org>', 'Ann "A"', "ann@example.org"),
        ("Zażółć <kwit@example.org>", "Zażółć", "kwit@example.org"),
    ],
)
def test_a_sender_has_one_address_and_perhaps_a_name(sender, name, address):
    assert parse_mailbox(sender) == (name, address)


@pytest.mark.parametrize(
    "sender",
    [
        "Acme, Inc. <noreply@example.org>",
        "a@example.org, b@example.org",
        "a@example.org; b@example.org",
        "<a@example.org> <b@example.org>",
        "Kwit <>",
        "",
        "nobody",
        "Kwit <kwit@example.org>\r\nBcc: x@example.org",
        "Kwit <kwit@example.org> x",
    ],
)
def test_what_is_not_one_sender_is_refused(sender):
    with pytest.raises(WrongAddress):
        parse_mailbox(sender)
