"""Arguments to JSON and back: what is accepted arrives as it was given."""

import collections
import datetime as dt
import functools
import ipaddress
import json
import os
import pathlib
import subprocess
import sys
import types
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, Optional
from zoneinfo import ZoneInfo

import msgspec
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.codec import MAX_PAYLOAD, Signature, Undecodable
from drumbeat.errors import ConfigError
from tests.unit.codec_models import (
    Address,
    Aliased,
    Box,
    Cat,
    Color,
    Customer,
    Dog,
    Exploding,
    Later,
    Level,
    Line,
    Mood,
    Order,
    Pair,
    Places,
    Point,
    Strict,
    Tree,
    later_user,
    of,
    shown,
)

BERLIN = dt.timezone(dt.timedelta(hours=1))
ID = uuid.UUID("0192f0c4-7a5e-7cc4-8f39-1eee21997fba")


def there_and_back(hint: Any, value: Any) -> Any:
    signature = Signature.of(of(hint))
    args, kwargs = signature.decode(signature.encode((value,), {}))
    assert (len(args), kwargs) == (1, {})
    return args[0]


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 2**63 - 1),
        (int, -(2**63)),
        (float, 1.5),
        (float, 5e-324),
        (str, "NaN"),
        (str, "Infinity null \\u0000 \\\\u0000 \\ud800"),
        (str, "Zoë 🎉 \u2028 \x7f \x1f"),
        (str, "[" * 500 + "{" * 500),
        (str, '"[' * 500),
        (str, "1" * 400),
        (bool, True),
        (None, None),
        (bytes, b"\x00\xff"),
        (Color, Color.BLUE),
        (Level, Level.HIGH),
        (Mood, Mood.GOOD),
        (uuid.UUID, ID),
        (Decimal, Decimal("9.90")),
        (Decimal, Decimal("-1E+500")),
        (dt.date, dt.date(2026, 1, 2)),
        (dt.time, dt.time(1, 2, 3, 4)),
        (dt.datetime, dt.datetime(2026, 1, 2, 3, 4, 5, 6)),
        (dt.datetime, dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=BERLIN)),
        (dt.timedelta, dt.timedelta(days=-1, microseconds=1)),
        (Order, Order(ID, [Line("a", Decimal("1.20")), Line("b", Decimal(3), 4)], None)),
        (Point, Point(1.0, None)),
        (Tree, Tree(1, [Tree(2), Tree(3, [Tree(4)])])),
        (Box[int], Box(3)),
        (Cat | Dog, Dog("Rex")),
        (list[Cat | Dog], [Cat(9), Dog("Rex")]),
        (Address, {"city": "Ulm"}),
        (Pair, Pair(1, "b")),
        (Optional[int], None),  # noqa: UP045
        (int | str, "1"),
        (Literal["a", 1, None], 1),
        (list[Point], [Point(1.0), Point(2.0, 3.0)]),
        (dict[str, list[int]], {"a": [1], "": []}),
        (dict[int, str], {1: "one"}),
        (dict[uuid.UUID, Decimal], {ID: Decimal("0.1")}),
        (dict[Color, int], {Color.RED: 1}),
        (dict[float, int], {1.5: 2}),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (set[int], {3, 1, 2}),
        (frozenset[str], frozenset({"a"})),
        (Customer, Customer(name="Ada", age=36)),
        (Customer | None, None),
        (list[Customer], [Customer(name="Ada"), Customer(name="Bob", score=1.5)]),
        (dict[str, Customer], {"a": Customer(name="Ada")}),
        (Strict, Strict(id=ID, tags={"a", "b"})),
        (Aliased, Aliased(**{"from": "here", "other": [1, 2]})),  # type: ignore[arg-type]
        (Any, {"a": [1, 2.5, None, True, "x", {}]}),
        (object, [1, "a"]),
        (list[object], [1, None]),
        (Annotated[int, msgspec.Meta(ge=0)], 5),
        (list, [1, "a", None]),
        (tuple[float, ...], tuple(n / 3 for n in range(50))),
        (list[int | None], [*range(20), None]),
        (dict, {"a": None}),
        (pathlib.Path, pathlib.Path("/srv/a b")),
        (list[pathlib.PurePosixPath], [pathlib.PurePosixPath("a/b")]),
        (pathlib.PureWindowsPath, pathlib.PureWindowsPath("C:\\x")),
        (dict[pathlib.Path, int], {pathlib.Path("a"): 1}),
        (ipaddress.IPv4Address, ipaddress.IPv4Address("192.0.2.1")),
        (ipaddress.IPv6Address | None, ipaddress.IPv6Address("fe80::1%eth0")),
        (ipaddress.IPv4Network, ipaddress.IPv4Network("10.0.0.0/8")),
        (ipaddress.IPv6Network, ipaddress.IPv6Network("2001:db8::/32")),
        (ipaddress.IPv4Interface, ipaddress.IPv4Interface("10.0.0.1/8")),
        (ipaddress.IPv6Interface, ipaddress.IPv6Interface("::1/64")),
        (ZoneInfo, ZoneInfo("Europe/Berlin")),
        (Fraction, Fraction(-1, 3)),
        (set[Fraction], {Fraction(10**30, 7)}),
        (collections.deque, collections.deque([1, "a"])),
        (collections.deque[Decimal], collections.deque([Decimal("1.10")])),
        (list[collections.deque[collections.deque[int]]], [collections.deque([collections.deque([1])])]),
        (Places, Places(pathlib.Path("x"), collections.deque([Fraction(1, 2)]))),
        (numpy.int8, numpy.int8(-3)),
        (numpy.uint64, numpy.uint64(2**63 - 1)),
        (numpy.float32, numpy.float32(0.1)),
        (list[numpy.float64], [numpy.float64(0.1)]),
        (numpy.bool_, numpy.bool_(True)),
        (numpy.str_, numpy.str_("a")),
        (numpy.bytes_, numpy.bytes_(b"\x00")),
        (numpy.datetime64, numpy.datetime64("2026-01-01T00:00:00", "ns")),
    ],
    ids=shown,
)
def test_a_value_arrives_as_it_was_given(hint: Any, value: Any) -> None:
    arrived = there_and_back(hint, value)
    assert arrived == value
    assert type(arrived) is type(value)


class Name(str):
    pass


class Moment(dt.datetime):
    pass


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (float, 3, 3.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (str, Name("Ada"), "Ada"),
        (str, Mood.GOOD, "good"),
        (int, Level.HIGH, 2),
        (dt.datetime, Moment(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (list[int], (1, 2), [1, 2]),
        (collections.abc.Sequence[int], range(3), [0, 1, 2]),
        (collections.abc.Sequence[int], collections.deque([1]), [1]),
        (dict[str, int], collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.abc.Mapping[str, int], types.MappingProxyType({"a": 1}), {"a": 1}),
        (collections.abc.Set[str], {"a": 1}.keys(), {"a"}),
        (bytes, bytearray(b"x"), b"x"),
        (Any, (1, 2), [1, 2]),
        (Any, Mood.GOOD, "good"),
        (int, numpy.int64(5), 5),
        (float, numpy.float32(0.5), 0.5),
        (float, numpy.int16(2), 2.0),
        (bool, numpy.bool_(False), False),
        (Any, {"a": [numpy.float64(0.1), numpy.uint8(1)]}, {"a": [0.1, 1]}),
        (pathlib.PurePath, pathlib.Path("a"), pathlib.PurePosixPath("a")),
    ],
    ids=repr,
)
def test_what_is_as_good_as_the_annotated_type_is_taken_for_it(hint: Any, value: Any, expected: Any) -> None:
    arrived = there_and_back(hint, value)
    assert arrived == expected
    assert type(arrived) is type(expected)


def task(a: int, /, b: str, c: float = 0.5, *, d: bool, e: list[int] | None = None) -> dict[str, int]:
    raise AssertionError("never called")


def test_only_what_was_given_is_stored_and_defaults_are_left_to_the_worker() -> None:
    raw = Signature.of(task).encode((1, "x"), {"d": True})
    assert json.loads(raw) == {"a": 1, "b": "x", "d": True}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, "x"), {"d": True}),
        ((1,), {"b": "x", "d": False, "e": None}),
        ((1, "x", 2.0), {"d": True, "e": [1, 2]}),
    ],
)
def test_a_decoded_call_calls_as_the_given_one_would(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    signature = Signature.of(task)
    got_args, got_kwargs = signature.decode(signature.encode(args, kwargs))

    def seen(a: int, /, b: str, c: float = 0.5, *, d: bool, e: list[int] | None = None) -> tuple[Any, ...]:
        return a, b, c, d, e

    assert seen(*got_args, **got_kwargs) == seen(*args, **kwargs)


def test_a_task_without_arguments_is_an_empty_object() -> None:
    signature = Signature.of(lambda: None)
    assert signature.encode((), {}) == "{}"
    assert signature.decode("{}") == ((), {})


def test_parameters_may_have_any_name() -> None:
    def odd(self: int, cls: int, id: int, _x: int, shape: int, größe: int, encode: int) -> None: ...

    signature = Signature.of(odd)
    assert signature.decode(signature.encode((1, 2, 3, 4, 5, 6, 7), {})) == ((1, 2, 3, 4, 5, 6, 7), {})


def test_a_batch_task_has_one_value() -> None:
    signature = Signature.of_value("save", Order)
    order = Order(ID)
    assert signature.decode(signature.encode((order,), {})) == ((order,), {})
    assert json.loads(signature.encode((), {"value": order}))["value"]["id"] == str(ID)
    assert Signature.of_value("other", Order).hash == signature.hash != Signature.of_value("save", Line).hash


# --- types ------------------------------------------------------------------------------------------------------------


def test_annotations_of_what_is_defined_later_are_resolved_at_first_use() -> None:
    module = types.ModuleType("half_loaded")
    code = "from __future__ import annotations\ndef f(x: Model, y: list[Model]) -> Model: ..."
    exec(code, vars(module))
    signature = Signature.of(module.f)
    exec("import msgspec\nclass Model(msgspec.Struct):\n    z: int", vars(module))
    model = module.Model(z=1)
    assert signature.decode(signature.encode((model,), {"y": [model]})) == ((model, [model]), {})
    assert signature.returns is module.Model


def test_forward_references_within_a_module_work() -> None:
    signature = Signature.of(later_user)
    args, kwargs = signature.decode(signature.encode((Later(1),), {"more": [Later(2)]}))
    assert (args, kwargs) == ((), {"first": Later(1), "more": [Later(2)]})


def test_an_annotation_that_never_resolves_is_told_at_use_with_its_parameter() -> None:
    def function(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    signature = Signature.of(function)
    with pytest.raises(ConfigError, match=r"function: an annotation cannot be resolved: of parameter 'x': .*Nowhere"):
        signature.encode((1,), {})


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (str | uuid.UUID, r"JSON cannot tell the members of str \| uuid.UUID apart: .* stored as text; choose one"),
        (complex, "complex cannot be stored as JSON: use a plain type"),
        (list[os.PathLike], "PathLike"),  # type: ignore[type-arg]
        (dict[str, collections.deque[complex]], r"complex cannot be stored as JSON: .* @app\.codec\(complex\) before"),
        (collections.OrderedDict[str, int], "OrderedDict"),
        (Customer | int, "models, .* may stand only beside None"),
        (pathlib.Path | str, r"members of pathlib.Path \| str apart"),
        (list[int] | set[int], "they are all stored as lists"),
        (Line | Order, "they are all stored as objects; make them msgspec.Structs with tag=True"),
    ],
    ids=str,
)
def test_a_type_that_json_cannot_carry_is_refused_at_registration(hint: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        Signature.of(of(hint))
    assert "task: parameter 'x'" in str(caught.value)
    assert caught.value.setting == "x"


def test_star_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"parameter \*args cannot be stored.*use a list or a dict"):
        Signature.of(lambda *args: None)
    with pytest.raises(ConfigError, match=r"parameter \*\*kwargs cannot be stored"):
        Signature.of(lambda **kwargs: None)


def test_a_return_type_never_keeps_a_task_from_being_registered() -> None:
    def strange() -> "Nowhere": ...  # type: ignore[name-defined]  # noqa: F821
    def unstorable() -> complex: ...  # type: ignore[empty-body]
    def plain(x: int) -> list[Order]: ...  # type: ignore[empty-body]
    def nothing() -> None: ...

    kinds = [Signature.of(function).returns for function in (strange, unstorable, plain, nothing)]
    assert kinds == [Any, Any, list[Order], type(None)]


def test_a_wrapped_function_has_the_signature_of_what_it_wraps() -> None:
    @functools.wraps(later_user)
    def wrapper(*args: Any, **kwargs: Any) -> Any: ...

    assert Signature.of(wrapper).hash == Signature.of(later_user).hash


# --- the fingerprint --------------------------------------------------------------------------------------------------

HASHES = """
from drumbeat.codec import Signature
from tests.unit.codec_models import *
from tests.unit.test_codec import task
from typing import Literal
hints = [Order, Tree, Customer, Strict, Address, Cat | Dog, Literal["a", "b", "c"], Color, int | None, dict[str, Pair]]
print([Signature.of(task).hash, *(Signature.of(of(hint)).hash for hint in hints)])
"""


def test_the_hash_is_the_same_in_every_process() -> None:
    seen = {
        subprocess.run(
            [sys.executable, "-c", HASHES],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1
    hashes = json.loads(seen.pop().replace("'", '"'))
    assert len(set(hashes)) == len(hashes)
    assert all(len(hash) == 12 and int(hash, 16) >= 0 for hash in hashes)


def test_the_hash_changes_with_what_is_stored() -> None:
    def base(a: int, b: str = "") -> None: ...
    def renamed(a: int, c: str = "") -> None: ...
    def retyped(a: int, b: bytes = b"") -> None: ...
    def required(a: int, b: str) -> None: ...
    def more(a: int, b: str = "", c: int = 0) -> None: ...

    hashes = [Signature.of(function).hash for function in (base, renamed, retyped, required, more)]
    assert len(set(hashes)) == 5


@pytest.mark.parametrize(
    ("one", "other"),
    [(Literal["a", "b", 1], Literal[1, "b", "a"]), (int | None, Optional[int]), (str | int | None, None | int | str)],  # noqa: UP045
)
def test_the_hash_does_not_see_an_order_that_means_nothing(one: Any, other: Any) -> None:
    assert Signature.of_value("t", one).hash == Signature.of_value("t", other).hash


def test_the_hash_sees_the_fields_of_nested_models() -> None:
    def made(kind: str, *fields: tuple[str, type]) -> str:
        return Signature.of_value("t", list[msgspec.defstruct(kind, fields)]).hash  # type: ignore[misc]

    assert made("A", ("x", int)) == made("B", ("x", int))
    assert made("A", ("x", int)) != made("A", ("x", str))
    assert made("A", ("x", int)) != made("A", ("y", int))


# --- what the store holds is untrusted --------------------------------------------------------------------------------


def two(a: int, b: str = "") -> None: ...


@pytest.mark.parametrize(
    ("raw", "is_json"),
    [
        ("", False),
        ("{", False),
        ("nonsense", False),
        ('{"a": "x", garbage', False),
        (b'{"a": 1, "b": "\xff"}', False),
        ('{"a": 1, "b": "\ud800"}', False),
        ("[" * 10**5, False),
        ("[" * 200 + "]" * 200, False),
        ('{"a": ' + "[" * 101 + "]" * 101 + "}", False),
        ('{"a": 1, "b": "' + "x" * MAX_PAYLOAD + '"}', False),
        ("[]", True),
        ("null", True),
        ("{}", True),
        ('{"a": "x"}', True),
        ('{"a": 1e400}', True),
        ('{"a": 1, "c": 2}', True),
        ('{"a": 1, "b": null}', True),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_does_not_fit_is_undecodable_and_says_whether_it_is_json(raw: str | bytes, is_json: bool) -> None:
    with pytest.raises(Undecodable) as caught:
        Signature.of(two).decode(raw)
    assert caught.value.json is is_json
    assert caught.value.reason == str(caught.value) != ""


def test_depth_and_size_up_to_the_limit_are_read() -> None:
    signature = Signature.of(of(Any))
    deep = '{"x":' + "[" * 100 + "]" * 100 + "}"
    assert signature.decode(deep)[0][0][0][0] != []
    wide = '{"x":"' + "é" * ((MAX_PAYLOAD - 8) // 2) + '"}'
    assert len(signature.decode(wide)[0][0]) == (MAX_PAYLOAD - 8) // 2
    with pytest.raises(Undecodable, match=r"262,146 bytes are over the limit of 262,144"):
        signature.decode('{"x":"' + "é" * ((MAX_PAYLOAD - 6) // 2) + '"}')


def test_a_model_that_raises_while_it_is_read_makes_the_job_undecodable() -> None:
    with pytest.raises(Undecodable, match="RuntimeError: boom") as caught:
        Signature.of(of(Exploding)).decode('{"x":{"value":-1}}')
    assert caught.value.json


def test_a_positional_argument_cannot_come_without_those_before_it() -> None:
    def optional(a: int = 1, b: int = 2, /) -> None: ...

    assert Signature.of(optional).decode('{"a":5}') == ((5,), {})
    with pytest.raises(Undecodable, match="b cannot be given without those before it"):
        Signature.of(optional).decode('{"b":5}')


@given(st.text() | st.binary(max_size=200))
@settings(deadline=None)
def test_no_content_of_the_store_raises_anything_but_undecodable(raw: str | bytes) -> None:
    for function in (two, of(list[Tree]), of(Customer)):
        try:
            Signature.of(function).decode(raw)
        except Undecodable:
            continue


# --- by property ------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.none() | st.booleans() | INTS | FLOATS | TEXT
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
MOMENTS = st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.just(BERLIN))
LINES = st.builds(Line, sku=TEXT, price=DECIMALS, count=INTS)
ORDERS = st.builds(Order, id=st.uuids(), lines=st.lists(LINES, max_size=3), note=st.none() | TEXT)
CUSTOMERS = st.builds(Customer, name=TEXT, age=st.none() | INTS, score=st.none() | FLOATS)
TYPED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, INTS),
    (float, FLOATS),
    (str, TEXT),
    (bytes, st.binary()),
    (Decimal, DECIMALS),
    (dt.datetime, MOMENTS),
    (dt.timedelta, st.timedeltas()),
    (dt.date, st.dates()),
    (dt.time, st.times()),
    (uuid.UUID, st.uuids()),
    (Color, st.sampled_from(Color)),
    (Order, ORDERS),
    (list[Order], st.lists(ORDERS, max_size=3)),
    (dict[str, Order | None], st.dictionaries(TEXT, st.none() | ORDERS, max_size=3)),
    (dict[int, list[float]], st.dictionaries(INTS, st.lists(FLOATS), max_size=3)),
    (dict[dt.date, str], st.dictionaries(st.dates(), TEXT, max_size=3)),
    (set[int], st.sets(INTS)),
    (set[Decimal], st.sets(DECIMALS, max_size=4)),
    (frozenset[str], st.frozensets(TEXT)),
    (tuple[int, str, bool], st.tuples(INTS, TEXT, st.booleans())),
    (Pair, st.builds(Pair, INTS, TEXT)),
    (Customer, CUSTOMERS),
    (list[Customer], st.lists(CUSTOMERS, max_size=3)),
    (int | str | None, st.none() | INTS | TEXT),
    (Any, JSON),
]


@pytest.mark.parametrize(("hint", "values"), TYPED, ids=lambda value: str(value)[:40])
def test_any_value_of_a_type_is_accepted_and_arrives_the_same(hint: Any, values: st.SearchStrategy[Any]) -> None:
    signature = Signature.of(of(hint))

    @given(values)
    @settings(deadline=None, max_examples=60)
    def check(value: Any) -> None:
        raw = signature.encode((value,), {})
        (arrived,), _ = signature.decode(raw)
        assert arrived == value
        assert type(arrived) is type(value)
        assert json.loads(raw).keys() == {"x"}

    check()
