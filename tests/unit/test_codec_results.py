"""Results, which are kept if they can be; and texts, which always can be."""

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.codec import MAX_PAYLOAD, Undecodable, Unstorable, decode_result, encode_result, make_storable
from tests.unit.codec_models import Color, Customer, Line, Order, Point, shown

ID = uuid.UUID("64112322-219a-498f-90b7-67c455476d02")


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (None, None),
        (None, type(None)),
        (5, int),
        ("NaN null \\u0000", str),
        ({"a": [1, None]}, None),
        ([1.5, None], list[float | None]),
        (Order(ID, [Line("a", Decimal("1.10"))]), Order),
        ([Customer(name="Ada")], list[Customer]),
        (Color.RED, Color),
        (dt.timedelta(seconds=5), dt.timedelta),
        ((1, "a"), tuple[int, str]),
        (2**63 - 1, Annotated[int, ["unhashable"]]),
        ("1" * 50, str),
    ],
    ids=repr,
)
def test_a_result_is_read_back_by_the_return_annotation(value: Any, hint: Any) -> None:
    assert decode_result(encode_result(value), hint) == value


def test_without_an_annotation_a_result_is_what_json_says() -> None:
    assert decode_result(encode_result({"when": dt.date(2026, 1, 1), "point": Point(1.0)})) == {
        "when": "2026-01-01",
        "point": {"x": 1.0, "y": None},
    }


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "the result is NaN or infinite"),
        ([1.0, math.inf], r"the result\[1\] is NaN"),
        ({"a": Point(1.0, math.nan)}, r"the result\['a'\]\.y is NaN"),
        ({math.nan: 1}, "is NaN"),
        (Decimal("NaN"), "is NaN"),
        ([Decimal("-Infinity")], "is NaN"),
        ({Decimal("sNaN").adjusted(): [Customer(name="x", score=math.nan)]}, "score is NaN"),
        (2**63, "integer beyond 64 bits"),
        ({"a": {2**70: 1}}, "integer beyond 64 bits"),
        ({2**70}, "integer beyond 64 bits"),
        ("\x00", "a NUL character"),
        ("\ud800", "a lone surrogate"),
        (object(), "object cannot be written as JSON"),
        ((x for x in [1]), "generator cannot be written as JSON"),
        ("x" * MAX_PAYLOAD, "262,146 bytes of JSON, over the limit of 262,144"),
    ],
    ids=lambda value: shown(value)[:24],
)
def test_a_result_that_cannot_be_kept_says_why(value: Any, reason: str) -> None:
    with pytest.raises(Unstorable, match=reason) as caught:
        encode_result(value)
    assert caught.value.reason == str(caught.value)


def test_a_result_may_be_a_hundred_levels_deep() -> None:
    value: list[Any] = []
    for _ in range(99):
        value = [value]
    assert decode_result(encode_result(value)) == value
    with pytest.raises(Unstorable, match="deeper than 100 levels"):
        encode_result([value])
    value.append(value)
    with pytest.raises(Unstorable, match="contains itself"):
        encode_result(value)


def test_the_limit_of_results_can_be_set() -> None:
    assert encode_result("abc", limit=5) == '"abc"'
    with pytest.raises(Unstorable, match="over the limit of 4"):
        encode_result("abc", limit=4)


def test_a_result_of_another_type_is_kept_but_not_read_as_the_annotated_one() -> None:
    raw = encode_result("five")
    with pytest.raises(Undecodable, match="Expected `int`, got `str`") as caught:
        decode_result(raw, int)
    assert caught.value.json
    assert decode_result(raw) == "five"


def test_a_result_that_is_no_json_is_told_so() -> None:
    with pytest.raises(Undecodable, match="not JSON") as caught:
        decode_result("{")
    assert not caught.value.json


@given(st.text(st.characters()) | st.text("\x00\ud800\udfffaé🎉\\", max_size=300), st.integers(0, 400))
@settings(deadline=None, max_examples=300)
def test_storable_text_is_utf8_without_nul_within_its_limit(text: str, limit: int) -> None:
    kept = make_storable(text, limit)
    assert b"\x00" not in kept.encode("utf-8")
    assert len(kept) <= limit


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=50))
@settings(deadline=None)
def test_good_text_within_the_limit_is_left_alone(text: str) -> None:
    assert make_storable(text, 50) == text


def test_bad_characters_stay_visible() -> None:
    assert make_storable("a\x00b\ud800c", 100) == "a\\x00b\\ud800c"


def test_a_long_text_loses_its_middle_and_says_so() -> None:
    kept = make_storable("begin " + "x" * 10_000 + " end", 100)
    assert kept.startswith("begin ")
    assert kept.endswith(" end")
    assert "characters cut" in kept
    assert len(kept) <= 100
