"""Figures and moments as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from drumbeat.web.pages.formatting import ago, count, first_line, format_json, ms, percent, short_id, span

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.0304, "30 ms"),
        (4.26, "4.3 s"),
        (48.9, "48 s"),
        (180, "3 min"),
        (3_600, "1 h"),
        (7_500, "2 h 5 min"),
        (4 * 86_400 + 3 * 3_600 + 59, "4 d 3 h"),
    ],
)
def test_a_length_of_time_has_at_most_two_units(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "now"), (-0.4, "now"), (5.9, "5 s ago"), (-65, "in 1 min"), (7_500, "2 h 5 min ago")]
)
def test_a_moment_is_told_as_seen_from_now(seconds: float, text: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == text


def test_a_share_is_never_rounded_to_none_or_all() -> None:
    assert [percent(share) for share in (0, 0.0001, 0.25, 0.99999, 1)] == [
        "0 %",
        "<0.1 %",
        "25.0 %",
        ">99.9 %",
        "100 %",
    ]


def test_counts_show_every_digit() -> None:
    assert (count(1_234_567), count(0), count(None)) == ("1,234,567", "0", "–")


def test_milliseconds_have_as_many_digits_as_matter() -> None:
    assert [ms(n) for n in (0.031, 4.2, 81, 2_345)] == ["0.03 ms", "4.2 ms", "81 ms", "2.3 s"]


def test_json_is_shown_with_every_number_and_text_as_it_was_stored() -> None:
    stored = '{"big":9007199254740993,"price":1.10,"twice":1,"twice":2,"text":"a, {b}: \\"c\\" \\u00e9","none":[]}'
    shown = format_json(stored)
    assert shown.splitlines()[1] == '  "big": 9007199254740993,'
    assert "1.10" in shown and shown.count('"twice"') == 2 and '"none": []' in shown
    assert '"text": "a, {b}: \\"c\\" \\u00e9"' in shown


@pytest.mark.parametrize("stored", ["3", '"x"', "[]", "{}", "null", ""])
def test_json_of_one_piece_stays_in_one_line(stored: str) -> None:
    assert format_json(stored) == stored


def test_long_texts_are_cut_at_their_first_line() -> None:
    assert first_line("a\nb") == "a"
    assert first_line("x" * 300, 10) == "xxxxxxxxx…"
    assert first_line("") == ""


def test_ids_are_shortened_to_what_tells_them_apart() -> None:
    assert short_id("01a1dfac-ce22-775a-8c32-6bd27b5acd69") == "…d27b5acd69"
