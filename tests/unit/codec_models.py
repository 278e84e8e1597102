"""The types that the tests of the codec send through JSON."""

from __future__ import annotations

import enum
import re
from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"


@dataclass
class Line:
    sku: str
    price: Decimal
    count: int = 1


@dataclass
class Order:
    id: UUID
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


@dataclass
class SpecialOrder(Order):
    discount: int = 0


@dataclass
class Places:
    folder: Path
    parts: deque[Fraction]


class Point(msgspec.Struct):
    x: float
    y: float | None = None


class Tree(msgspec.Struct):
    value: int
    children: list[Tree] = []


class Box(msgspec.Struct, Generic[T]):
    inside: T


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Address(TypedDict, total=False):
    city: str
    zip: int


class Pair(NamedTuple):
    left: int
    right: str


class Customer(BaseModel):
    name: str
    age: int | None = None
    score: float | None = None


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    id: UUID
    tags: set[str] = set()


class Aliased(BaseModel):
    model_config = ConfigDict(extra="allow")
    from_: str = Field(alias="from")


class Secret(BaseModel):
    password: SecretStr


class Exploding(msgspec.Struct):
    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise RuntimeError("boom")


def later_user(first: Later, *, more: list[Later]) -> Later:
    raise AssertionError("never called")


@dataclass
class Later:
    x: int


def of(hint: Any) -> Any:
    """A function with one argument `x` of this type."""

    def task(x: Any) -> None:
        raise AssertionError("never called")

    task.__annotations__["x"] = hint
    return task


def shown(value: object) -> str:
    """A name for a test of this value that is the same in every process: no addresses, no order of sets."""
    return re.sub(r"0x[0-9a-f]+|\{'[ab]', '[ab]'\}", "...", repr(value))
