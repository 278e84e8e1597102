"""Arguments that would not arrive as they were given: refused at the call, naming the argument."""

import datetime as dt
import math
import re
import uuid
from collections import deque
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.codec import MAX_DEPTH, MAX_PAYLOAD, Signature
from drumbeat.errors import InvalidArguments
from tests.unit.codec_models import (
    Address,
    Aliased,
    Color,
    Customer,
    Line,
    Order,
    Pair,
    Point,
    Secret,
    SpecialOrder,
    Tree,
    of,
    shown,
)

ID = uuid.UUID("64112322-219a-498f-90b7-67c455476d02")
NAN = math.nan


def refusal(hint: Any, value: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        Signature.of(of(hint)).encode((value,), {})
    assert caught.value.argument == "x"
    assert "'x'" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


@pytest.mark.parametrize(
    ("hint", "value", "reason"),
    [
        (str, dt.datetime(2026, 1, 1), "must be str, not datetime"),
        (str, ID, "must be str, not UUID"),
        (str, Decimal(1), "must be str, not Decimal"),
        (str, b"x", "must be str, not bytes"),
        (str, Color.RED, "must be str, not Color"),
        (str, None, "must be str, not NoneType"),
        (int, True, "must be int, not bool"),
        (int, 1.0, "must be int, not float"),
        (int, "1", "must be int, not str"),
        (float, True, "must be float, not bool"),
        (float, Decimal("0.5"), "must be float, not Decimal"),
        (Decimal, 0.5, "must be Decimal, not float"),
        (Decimal, "0.5", "must be Decimal, not str"),
        (Decimal, 1, "must be Decimal, not int"),
        (uuid.UUID, str(ID), "must be UUID, not str"),
        (dt.datetime, "2026-01-01T00:00:00", "must be datetime, not str"),
        (dt.date, dt.datetime(2026, 1, 1), "argument 'x': Invalid RFC3339 encoded date"),
        (bytes, "eA==", "must be bytes, not str"),
        (Color, "red", "must be Color, not str"),
        (Order, {"id": ID}, "must be Order, not dict"),
        (Order, SpecialOrder(ID), "must be Order, not SpecialOrder"),
        (Customer, {"name": "Ada"}, "must be Customer, not dict"),
        (Pair, (1, "a"), "must be Pair, not tuple"),
        (list[str], ["a", ID], r"at \[1\] is UUID, but would arrive as str"),
        (list[int], {1, 2}, r"must be list\[int\], not set"),
        (set[int], [1, 1], r"must be set\[int\], not list"),
        (dict[str, int], {1: 2}, "has a key that is int, but would arrive as str"),
        (dict[str, Any], {"when": dt.date(2026, 1, 1)}, r"at \['when'\] is date, but would arrive as str: annotate"),
        (Any, ID, "is UUID, but would arrive as str: annotate it as UUID, or convert it"),
        (Any, {"a": {1}}, r"at \['a'\] is set, but would arrive as list"),
        (Any, Point(1.0), "is Point, but would arrive as dict"),
        (Any, Pair(1, "a"), "is Pair, but would arrive as list"),
        (Any, {1: "a"}, "has a key that"),
        (int | None, "x", r"must be int \| None, not str"),
        (list[Line], [Line("a", 1.5)], r"at \[0\]\.price is float, but would arrive as Decimal"),  # type: ignore[arg-type]
        (list[Line], [Line("a", Decimal(1), "x")], r"at \[0\]\.count"),  # type: ignore[arg-type]
        (Address, {"city": "Ulm", "street": "x"}, "would arrive without 'street'"),
        (Customer, Customer.model_construct(name=5), "Input should be a valid string"),
        (Secret, Secret(password="hunter2"), "would arrive changed"),  # type: ignore[arg-type]
        (object, object(), "object cannot be written as JSON"),
        (dict[int, int], {True: 3}, "the keys of a dict in JSON are texts and numbers, not bool"),
        (Any, {Pair(1, "a"): 3}, "the keys of a dict in JSON are texts and numbers, not list"),
        (Any, {(1, 2): 3}, "the keys of a dict in JSON are texts and numbers, not tuple"),
        (Path, "a", "must be Path, not str"),
        (str, Path("a"), "must be str, not PosixPath"),
        (IPv4Address, IPv4Interface("10.0.0.1/8"), "not a IPv4Address"),
        (Fraction, 1, "must be Fraction, not int"),
        (Fraction, 0.5, "must be Fraction, not float"),
        (deque, deque([1], maxlen=3), "is a deque with maxlen=3, which would be lost"),
        (deque[Decimal], deque([1.0]), r"at \[0\] is float, but would arrive as Decimal"),
        (deque[int], [1], r"must be collections.deque\[int\], not list"),
        (numpy.float32, numpy.float32("nan"), "is NaN or infinite"),
        (float, numpy.float16("inf"), "is NaN or infinite"),
        (Any, [numpy.float64("nan")], "is NaN or infinite"),
        (numpy.uint64, numpy.uint64(2**63), "integer beyond 64 bits"),
        (numpy.int8, 300, "out of bounds for int8"),
        (int, numpy.float64(1.0), "must be int, not float64"),
        (numpy.datetime64, numpy.datetime64("2026-01-01", "W"), "would arrive changed"),
        (Any, numpy.arange(3), r"ndarray cannot be written as JSON without @app\.codec\(ndarray\)"),
        (Any, numpy.complex64(1), r"is numpy.complex64, which cannot be stored without @app\.codec"),
    ],
    ids=lambda value: shown(value)[:40],
)
def test_a_wrong_type_is_refused(hint: Any, value: Any, reason: str) -> None:
    assert re.search(reason, refusal(hint, value))


def test_a_moment_whose_zone_is_older_than_minutes_would_shift_and_is_refused() -> None:
    old = dt.datetime(1890, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert "would arrive changed" in refusal(dt.datetime, old)
    assert "has an item that would be lost" in refusal(set[dt.datetime], {old})


@pytest.mark.parametrize("number", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("hint", "wrap"),
    [
        (float, lambda n: n),
        (float | None, lambda n: n),
        (Any, lambda n: n),
        (Any, lambda n: {"a": [1, n]}),
        (list[float], lambda n: [1.0, n]),
        (list[float | None], lambda n: [None, n]),
        (tuple[float | None, ...], lambda n: (n,)),
        (dict[str, float | None], lambda n: {"a": n}),
        (dict[float, int], lambda n: {n: 1}),
        (set[float], lambda n: {n}),
        (Point, lambda n: Point(1.0, n)),
        (list[Point], lambda n: [Point(n)]),
        (Customer, lambda n: Customer(name="Ada", score=n)),
        (list[Customer], lambda n: [Customer(name="Ada", score=n)]),
        (Decimal, lambda n: Decimal(n)),
        (tuple[float | None, ...], lambda n: (*([0.5] * 20), n)),
        (Aliased, lambda n: Aliased(**{"from": "here", "extra": n})),
        (list[Decimal], lambda n: [Decimal(1), Decimal(n)]),
    ],
)
def test_nan_and_infinity_are_refused_wherever_they_are(hint: Any, wrap: Any, number: float) -> None:
    refusal(hint, wrap(number))


def test_the_place_of_a_nan_is_told() -> None:
    message = refusal(list[Point], [Point(1.0), Point(2.0, NAN)])
    assert message == "of.<locals>.task: argument 'x' at [1].y is NaN or infinite, which JSON cannot keep"


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (str, "a\x00b"),
        (str, "\\\x00"),
        (list[str], ["\x00"]),
        (dict[str, int], {"\x00": 1}),
        (Any, {"a": ["\x00"]}),
        (Line, Line("\x00", Decimal(1))),
        (Customer, Customer(name="\x00")),
    ],
)
def test_a_nul_character_is_refused(hint: Any, value: Any) -> None:
    assert "contains a NUL character" in refusal(hint, value)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (str, "a\ud800"),
        (list[str], ["\udfff"]),
        (dict[str, int], {"\ud800": 1}),
        (Line, Line("\ud800", Decimal(1))),
        (Customer, Customer.model_construct(name="\ud800")),
    ],
)
def test_a_lone_surrogate_is_refused(hint: Any, value: Any) -> None:
    assert "contains a lone surrogate" in refusal(hint, value)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**100])
@pytest.mark.parametrize(
    ("hint", "wrap"),
    [
        (int, lambda n: n),
        (Any, lambda n: n),
        (float, lambda n: n),
        (list[int], lambda n: [1, n]),
        (list[int], lambda n: [*range(20), n]),
        (tuple[int, ...], lambda n: (*range(20), n)),
        (dict[int, str], lambda n: {n: "a"}),
        (dict[str, Any], lambda n: {"a": [n]}),
        (set[int], lambda n: {n}),
        (Tree, lambda n: Tree(n)),
        (Customer, lambda n: Customer(name="Ada", age=n)),
    ],
)
def test_an_integer_beyond_64_bits_is_refused(hint: Any, wrap: Any, number: int) -> None:
    assert "integer beyond 64 bits" in refusal(hint, wrap(number))


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_hundred_levels_are_taken_and_one_more_is_not() -> None:
    signature = Signature.of(of(Any))
    (arrived,), _ = signature.decode(signature.encode((nested(MAX_DEPTH),), {}))
    assert arrived == nested(MAX_DEPTH)
    assert "is nested deeper than 100 levels" in refusal(Any, nested(MAX_DEPTH + 1))


def test_depth_counts_models_and_is_not_fooled_by_brackets_in_text() -> None:
    tree = Tree(0)
    for _ in range(60):
        tree = Tree(0, [tree])
    assert "is nested deeper than 100 levels" in refusal(Tree, tree)
    assert "is nested deeper than 100 levels" in refusal(Any, ['"]]]' * 200, nested(MAX_DEPTH)])
    wide = [{"a": [1], "b": '\\"[[['}] * 1_000
    Signature.of(of(Any)).encode((wide,), {})


def test_what_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "is nested too deeply, or contains itself" in refusal(Any, loop)


def test_the_largest_payload_is_taken_and_one_byte_more_is_not() -> None:
    signature = Signature.of(of(str))
    most = MAX_PAYLOAD - len('{"x":""}')
    assert len(signature.encode(("x" * most,), {})) == MAX_PAYLOAD
    message = refusal(str, "x" * (most + 1))
    assert "262,145 bytes of JSON, over the limit of 262,144" in message
    assert "store the data elsewhere and pass a reference" in message


def test_the_largest_argument_is_named_and_the_limit_can_be_set() -> None:
    def two(a: str, b: str) -> None: ...

    with pytest.raises(InvalidArguments, match=r"over the limit of 50, and 'b' is the largest") as caught:
        Signature.of(two).encode(("x" * 20, "y" * 30), {}, limit=50)
    assert caught.value.argument == "b"


def task(a: int, /, b: str, c: float = 0.5, *, d: bool) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "argument", "reason"),
    [
        ((), {"b": "", "d": True}, "a", "argument 'a' is missing"),
        ((1, ""), {}, "d", "argument 'd' is missing"),
        ((1,), {"d": True}, "b", "argument 'b' is missing"),
        ((1, ""), {"d": True, "z": 1}, "z", "unknown argument 'z'; it takes a, b, c, d"),
        ((1, ""), {"d": True, "b": ""}, "b", "'b' was given twice"),
        ((), {"a": 1, "b": "", "d": True}, "a", "'a' must be given by position"),
        ((1, "", 0.5, True), {"d": True}, None, "takes at most 3 positional arguments, but got 4"),
        ((1, "x"), {"d": True, "c": "y"}, "c", "argument 'c' must be float, not str"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], argument: str | None, reason: str
) -> None:
    with pytest.raises(InvalidArguments, match=reason) as caught:
        Signature.of(task).encode(args, kwargs)
    assert caught.value.argument == argument


def test_the_right_one_of_several_arguments_is_named() -> None:
    def many(a: str, b: Any, c: list[str], d: float | None = None) -> None: ...

    good: dict[str, Any] = {"a": "x", "b": None, "c": [], "d": 1.0}
    bad = [("a", 5), ("a", "\x00"), ("b", NAN), ("b", nested(101)), ("c", ["\ud800"]), ("c", [5]), ("d", math.inf)]
    for name, value in bad:
        with pytest.raises(InvalidArguments) as caught:
            Signature.of(many).encode((), {**good, name: value})
        assert (caught.value.argument, value) == (name, value)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals() | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)
HINTS = [Any, int, float, str, Decimal, list[str], dict[str, Any], list[float | None], dict[int, Decimal], object]


@pytest.mark.parametrize(("value", "hint"), [(2**53 + 1, float), ([2**53 + 1], list[float])])
def test_an_integer_that_a_float_cannot_hold_is_refused_where_a_float_is_wanted(value: Any, hint: Any) -> None:
    with pytest.raises(InvalidArguments, match="a float cannot hold exactly: annotate it as int"):
        Signature.of(of(hint)).encode((value,), {})


@given(ANYTHING, st.sampled_from(HINTS))
@settings(deadline=None, max_examples=400)
def test_whatever_is_given_arrives_equal_or_is_refused(value: Any, hint: Any) -> None:
    signature = Signature.of(of(hint))
    try:
        raw = signature.encode((value,), {})
    except InvalidArguments:
        return
    assert signature.decode(raw) == ((value,), {})
