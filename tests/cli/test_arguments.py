"""Arguments as people type them, typed by the task's own signature."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest

from drumbeat.cli.arguments import decode_by_signature, parse_arguments
from drumbeat.cli.failures import BadInput
from drumbeat.codec import Signature


class Colour(StrEnum):
    RED = "red"


def charge(
    customer: int,
    amount: Decimal = Decimal(0),
    note: str = "",
    paid: bool = False,
    day: date | None = None,
    tags: list[str] | None = None,
    colour: Colour = Colour.RED,
    ref: UUID | None = None,
    either: int | str = 0,
    share: float = 0.0,
    anything: Any = None,
) -> None: ...


def first_only(a: int, /, b: int) -> None: ...


def read(*pairs: str, document: str | None = None) -> dict[str, Any]:
    args, kwargs = decode_by_signature(Signature.of(charge), "charge", parse_arguments(pairs, document))
    assert args == []
    return kwargs


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("customer=42", 42),
        ("amount=9.90", Decimal("9.90")),
        ("note=42", "42"),
        ("note=", ""),
        ("note=a=b", "a=b"),
        ("note=null", "null"),
        ("paid=true", True),
        ("day=2026-11-15", date(2026, 11, 15)),
        ("day=null", None),
        ('tags:=["a","b"]', ["a", "b"]),
        ("tags=[]", []),
        ("colour=red", Colour.RED),
        ("ref=12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        ("either=7", "7"),
        ("either:=7", 7),
        ("share=1", 1.0),
        ("anything=7", "7"),
        ('anything:={"a":[1]}', {"a": [1]}),
    ],
)
def test_text_is_read_by_the_type_of_its_parameter(pair: str, value: object) -> None:
    (got,) = read(pair).values()
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("customer=forty", "argument 'customer' must be int, not 'forty'"),
        ("paid=yes", "argument 'paid' must be bool, not 'yes'"),
        ("tags:=[1]", "argument 'tags': Expected `str`"),
        ("tags:=[", "argument 'tags': not JSON"),
        ("colour=blue", "argument 'colour' must be Colour, not 'blue'"),
    ],
)
def test_a_wrong_value_names_its_argument(pair: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(pair)
    assert message in refused.value.message


@pytest.mark.parametrize("pair", ["customer", "=1", "1a=2", "a b=1"])
def test_a_word_without_a_name_is_refused(pair: str) -> None:
    with pytest.raises(BadInput, match="write name=value"):
        parse_arguments([pair], None)


def test_the_same_argument_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="'customer' was given twice"):
        parse_arguments(["customer=1", "customer=2"], None)
    with pytest.raises(BadInput, match="'customer' was given twice"):
        parse_arguments(["customer=1"], '{"customer": 2}')


def test_a_document_is_json_by_type() -> None:
    assert read(document='{"customer": 42, "amount": "9.90"}') == {"customer": 42, "amount": Decimal("9.90")}


@pytest.mark.parametrize("document", ["[1]", "{", "42"])
def test_a_document_that_is_no_object_is_refused(document: str) -> None:
    with pytest.raises(BadInput, match="--args must be one JSON object"):
        parse_arguments([], document)


def test_parameters_by_position_only_are_given_by_position() -> None:
    assert decode_by_signature(Signature.of(first_only), "first_only", parse_arguments(["b=2", "a=1"], None)) == (
        [1],
        {"b": 2},
    )


def test_an_unknown_argument_is_left_for_enqueue_to_refuse() -> None:
    assert read("nobody=1") == {"nobody": "1"}
