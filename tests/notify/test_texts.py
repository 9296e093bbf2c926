"""Texts that fit: properties over hostile texts, and the places where they are cut."""

import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from notify.models import SUBJECT_UNITS_MAX
from notify.text import ELLIPSIS, clean, one_line, shorten, stored, units

#: All of Unicode with lone surrogates and NUL, and often what breaks headers and cuts.
HOSTILE = st.text(
    st.one_of(
        st.characters(exclude_categories=()),
        st.sampled_from("\r\n\t\0\x0b\x0c\x1c\x85\u2028\u2029\u200d\u202e\ufe0f\u0301e👩💻🧾🇯🇵각 \ud800\udfff"),
    ),
    max_size=700,
)


@given(HOSTILE)
def test_one_line_is_one_line_that_every_database_and_header_takes(text):
    line = one_line(text)

    assert len(line.splitlines()) <= 1
    assert "\r" not in line
    assert "\0" not in line
    assert line == line.strip()
    line.encode()


@given(HOSTILE)
def test_making_one_line_twice_changes_nothing(text):
    assert one_line(one_line(text)) == one_line(text)


@given(HOSTILE)
def test_clean_text_can_be_stored_and_is_left_alone(text):
    cleaned = clean(text)

    assert "\0" not in cleaned
    cleaned.encode()
    assert clean(cleaned) == cleaned
    if "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        assert cleaned == text


@given(HOSTILE, st.integers(min_value=1, max_value=SUBJECT_UNITS_MAX))
def test_shortened_text_fits_and_is_cut_between_whole_characters(text, units_max):
    short = shorten(text, units_max)

    assert units(short) <= units_max
    if units(text) <= units_max:
        assert short == text
    else:
        assert short.endswith(ELLIPSIS)
        kept, whole = short.removesuffix(ELLIPSIS), regex.findall(r"\X", text)
        beginnings = {"".join(whole[:number]).rstrip() for number in range(len(whole) + 1)}
        assert kept in beginnings


def test_a_text_that_fits_exactly_stays_and_one_unit_more_is_cut():
    assert shorten("x" * 255, 255) == "x" * 255
    assert shorten("x" * 256, 255) == "x" * 254 + ELLIPSIS


def test_what_counts_are_utf_16_units_because_nvarchar_counts_them():
    assert units("a€😀") == 4
    assert shorten("😀" * 127, 255) == "😀" * 127
    assert shorten("😀" * 128, 255) == "😀" * 127 + ELLIPSIS


def test_a_family_emoji_a_flag_and_a_combining_accent_are_not_torn_apart():
    family, flag, accented = "👩‍👩‍👧‍👦", "🇵🇱", "e\u0301"

    assert shorten(family * 2, units(family) + 1) == family + ELLIPSIS
    assert shorten(family * 2, units(family)) == ELLIPSIS
    assert shorten(flag * 3, 9) == flag * 2 + ELLIPSIS
    assert shorten(accented * 3, 4) == accented + ELLIPSIS


def test_a_character_that_is_longer_than_the_place_leaves_the_ellipsis():
    assert shorten("Z" + "\u0301" * 400, 255) == ELLIPSIS


def test_no_blank_stands_before_the_ellipsis():
    assert shorten("one two three", 5) == "one" + ELLIPSIS


def test_log_texts_are_cut_at_their_limit_and_not_before():
    assert stored("x" * 4000, 4000) == "x" * 4000
    assert stored("x" * 4001, 4000) == "x" * 3999 + ELLIPSIS
    assert stored("a\0b\ud800", 4000) == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    "piece", ["\U0001f1e6", "\U0001f469\u200d", "e\u0301", "\u0301", "\u200d", "x", "\U0001f9fe"], ids=ascii
)
def test_shortening_takes_no_longer_for_a_text_that_is_longer(piece):
    text = "x" + piece * 1_000_000
    began = time.perf_counter()

    cut = shorten(text, SUBJECT_UNITS_MAX)

    assert time.perf_counter() - began < 0.5
    assert units(cut) <= SUBJECT_UNITS_MAX
    assert cut.endswith(ELLIPSIS)


@given(HOSTILE, st.integers(2, 300))
def test_a_text_is_cut_between_two_characters_and_no_sooner_than_it_must(text, units_max):
    cut = shorten(text, units_max)

    if cut != text:
        characters, head = regex.findall(r"\X", text), cut.removesuffix(ELLIPSIS)
        ends = ["".join(characters[:count]) for count in range(len(characters) + 1)]
        fitting = [end for end in ends if units(end) + 1 <= units_max]
        assert head == fitting[-1].rstrip()
