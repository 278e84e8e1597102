"""What a person sees of values that nobody vouches for."""

from datetime import UTC, datetime, timedelta

import pytest

from drumbeat.cli import formatting
from drumbeat.plural import format_count

NOW = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\tc", r"a\nb\tc"),
        ("right\u202eleft", r"right\u202eleft"),
        ("lone \ud800", r"lone \ud800"),
        ("grüße 日本", "grüße 日本"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert formatting.escape(text) == shown


def test_a_long_value_is_cut_and_says_so() -> None:
    assert formatting.format_value("x" * 100, 10) == "x" * 9 + "…"
    assert formatting.format_value("x" * 10, 10) == "x" * 10


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_is_a_dash(value: object) -> None:
    assert formatting.format_value(value) == "-"


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "db_password",
        "TOKEN",
        "access_token",
        "client_secret",
        "Authorization",
        "api_key",
        "apiKey",
        "api-key",
    ],
)
def test_what_looks_like_a_secret_is_redacted_at_any_depth(key: str) -> None:
    assert "hush" not in formatting.format_arguments(f'{{"a":[{{"{key}":"hush"}}],"{key}":{{"x":"hush"}}}}')
    assert "hush" not in formatting.format_arguments_indented(f'{{"a":[{{"{key}":"hush"}}]}}')


def test_other_arguments_are_shown_as_json_values() -> None:
    assert (
        formatting.format_arguments('{"customer":42,"amount":"9.90","tags":["a"]}')
        == 'customer=42, amount="9.90", tags=["a"]'
    )


def test_arguments_that_are_no_json_are_shown_escaped() -> None:
    assert formatting.format_arguments("\x1b not json") == r"\x1b not json"
    assert formatting.format_arguments_indented("\x1b not json") == r"\x1b not json"


def test_arguments_keep_escapes_inside_strings() -> None:
    assert formatting.format_arguments('{"a":"\\u001b[2J"}') == r'a="\u001b[2J"'


def test_a_message_of_several_lines_becomes_one() -> None:
    assert formatting.to_one_line("a\n  b\r\n c\x07") == r"a b c\x07"


@pytest.mark.parametrize(
    ("offset", "shown"),
    [
        (timedelta(milliseconds=-300), "now"),
        (timedelta(seconds=-90), "1m 30s ago"),
        (timedelta(hours=2), "in 2h"),
        (timedelta(days=-3, hours=-4), "3d 4h ago"),
        (timedelta(seconds=-1.7), "1s ago"),
    ],
)
def test_how_far_a_timestamp_is_from_now(offset: timedelta, shown: str) -> None:
    assert formatting.format_ago(NOW + offset, NOW) == shown


def test_a_timestamp_of_today_has_no_date_and_one_of_another_day_has() -> None:
    assert formatting.format_timestamp(NOW - timedelta(minutes=5), NOW) == "09:25:00 (5m ago)"
    assert formatting.format_timestamp(NOW - timedelta(days=1), NOW) == "2026-11-14 09:30 (1d ago)"


def test_a_timestamp_of_another_zone_is_shown_in_utc() -> None:
    assert (
        formatting.format_exact(datetime.fromisoformat("2026-11-15T10:30:00.125+01:00"), NOW)
        == "2026-11-15 09:30:00.125 UTC (now)"
    )


def test_numbers_agree_with_their_noun() -> None:
    assert format_count(1, "job") == "1 job"
    assert format_count(1200, "job") == "1,200 jobs"
    assert format_count(2, "dead letter") == "2 dead letters"
