"""`@app.codec(Type)`: types of the program's own as arguments and results."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.testing import Kit


class Money:
    """It does not say when two of them are equal."""

    def __init__(self, cents: int, currency: str) -> None:
        self.cents, self.currency = cents, currency


class Range:
    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Range) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.first)


class MoneyCodec:
    @staticmethod
    def encode(value: Money) -> tuple[int, str]:
        return value.cents, value.currency

    @staticmethod
    def decode(stored: tuple[int, str]) -> Money:
        return Money(*stored)


class RangeCodec:
    def encode(self, value: Range) -> str:
        return f"{value.first}-{value.last}"

    def decode(self, stored: Any) -> Range:
        first, _, last = stored.partition("-")
        return Range(int(first), int(last))


def app_with_codecs() -> Drumbeat:
    app = Drumbeat(name="codecs")
    app.codec(Money)(MoneyCodec)
    app.codec(Range)(RangeCodec)
    return app


async def test_arguments_and_results_pass_through_the_codec_wherever_they_are() -> None:
    app = app_with_codecs()

    @app.task
    async def convert(prices: list[Money], by: dict[str, Range | None], one: Money | None = None) -> dict[str, Money]:
        assert by["b"] == Range(1, 2) and by["none"] is None and one is not None
        return {"sum": Money(sum(each.cents for each in prices) + one.cents, "EUR")}

    async with Kit(app) as kit:
        job = await convert.enqueue(
            [Money(1, "EUR"), Money(2, "EUR")], {"b": Range(1, 2), "none": None}, one=Money(3, "EUR")
        )
        assert (await job.job()).args == '{"prices":[[1,"EUR"],[2,"EUR"]],"by":{"b":"1-2","none":null},"one":[3,"EUR"]}'
        await kit.run_until_idle()
        assert vars((await job.result())["sum"]) == {"cents": 6, "currency": "EUR"}
        performed = await kit.perform(convert.bind([], {"b": Range(1, 2), "none": None}, Money(1, "EUR")))
        assert performed["sum"].cents == 1
        shown = await app.tasks.show("convert")
        assert [each.schema["type"] for each in shown.parameters if each.name != "one"] == ["array", "object"]


def test_what_the_codec_changes_or_refuses_is_refused_at_the_call() -> None:
    app = app_with_codecs()

    class Rounded(RangeCodec):
        def encode(self, value: Range) -> str:
            return f"{value.first}-{value.first}"

    class Lossy(MoneyCodec):
        @staticmethod
        def decode(stored: tuple[int, str]) -> Money:
            return Money(stored[0], "EUR")

    lossy = Drumbeat()
    lossy.codec(Money)(Lossy)
    lossy.codec(Range)(Rounded)
    for each in (app, lossy):

        @each.task
        def pay(price: Money | None = None, within: list[Range] | None = None, what: Any = None) -> None: ...

        right = {"price": Money(1, "EUR"), "within": [Range(1, 1)]}
        assert pay.bind(**right).args  # type: ignore[arg-type]
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"price": 3}, "argument 'price': not what the codec of Money stores"),
            ({"price": Money("1", "EUR")}, "not what the codec of Money stores: Expected `int`, got `str`"),  # type: ignore[arg-type]
            ({"price": Money(2**70, "EUR")}, r"what the codec of Money gives\[0\] is an integer beyond 64 bits"),
            ({"within": ["x"]}, r"argument 'within' at \[0\]: the codec of Range cannot read it: ValueError: invalid"),
            ({"within": [Range(None, 1)]}, r"cannot read it|would arrive"),  # type: ignore[arg-type]
            ({"what": Money(1, "EUR")}, "is Money, but would arrive as list: annotate it as Money"),
        ]
        if each is lossy:
            wrong += [
                ({"price": Money(1, "USD")}, "argument 'price' would arrive changed by its codec"),
                ({"within": [Range(1, 2)]}, r"argument 'within' at \[0\] would arrive changed"),
            ]
        for arguments, message in wrong:
            with pytest.raises(InvalidArguments, match=message) as refused:
                pay.bind(**arguments)
            assert refused.value.argument == next(iter(arguments))


def test_a_codec_is_checked_where_it_is_registered() -> None:
    app = app_with_codecs()

    class WithoutDecode:
        def encode(self, value: Money) -> str:
            return ""

    class WithArguments(MoneyCodec):
        def __init__(self, currency: str) -> None: ...

    for kind, codec, message in (
        (int, MoneyCodec, "int needs no codec: its values are stored as they are"),
        (Path, MoneyCodec, "Path needs no codec"),
        (list[int], MoneyCodec, "@app.codec takes a class, not list"),
        ("Money", MoneyCodec, "@app.codec takes a class, not 'Money'"),
        (Money, WithoutDecode, r"WithoutDecode'> has no decode\(stored\)"),
        (Money, WithArguments, "the codec of Money is made without arguments"),
        (Money, MoneyCodec, r"there are two codecs of Money: one at .*test_app_codec.py:\d+, one at"),
    ):
        with pytest.raises(ConfigError, match=message):
            app.codec(kind)(codec)  # type: ignore[type-var, arg-type]
    with pytest.raises(ConfigError, match=r"is annotated Money, but Money .* register @app.codec\(Money\) before this"):

        @Drumbeat().task
        def pay(price: Money) -> None: ...


def test_numpy_and_pydantic_are_never_imported() -> None:
    code = (
        "import sys, drumbeat\n"
        "app = drumbeat.Drumbeat()\n"
        "@app.task\n"
        "def f(x: int) -> None: ...\n"
        "f.bind(1)\n"
        "try: f.bind(object())\n"
        "except drumbeat.errors.InvalidArguments: pass\n"
        "assert not {'numpy', 'pydantic'} & set(sys.modules), sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
