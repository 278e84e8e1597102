"""What is refused of jobs that wait for each other before they are stored. Pure."""

import dataclasses
import uuid
from datetime import datetime
from typing import Annotated, Any, Literal, NewType, TypedDict

import msgspec
import pytest

from drumbeat import Drumbeat
from drumbeat.client import graphs
from drumbeat.client.graphs import check_graph, may_become
from drumbeat.errors import InvalidArguments
from drumbeat.tasks import Registry


@dataclasses.dataclass
class Cat:
    name: str


@dataclasses.dataclass
class Kitten(Cat):
    age: int


class Dog(msgspec.Struct):
    name: str


class Row(TypedDict):
    name: str


Price = NewType("Price", int)


@pytest.mark.parametrize(
    ("returned", "wanted"),
    [
        (int, int),
        (int, float),
        (int, Any),
        (Any, int),
        (int, object),
        (None, None),
        (int | None, int),
        (int, int | str),
        (str | None, int | None),
        (Annotated[int, "pence"], int),
        (Price, int),
        (Literal["a"], str),
        (list[int], list[float]),
        (list[int], list),
        (tuple[int, str], list[int]),
        (set[int], list[int]),
        (dict[str, int], dict[str, int]),
        (dict[str, Any], Cat),
        (Cat, dict[str, str]),
        (Row, Cat),
        (Kitten, Cat),
        (str, datetime),
        (datetime, str),
        (str, uuid.UUID),
    ],
)
def test_what_may_become_a_parameter(returned: Any, wanted: Any) -> None:
    assert may_become(returned, wanted)


@pytest.mark.parametrize(
    ("returned", "wanted"),
    [
        (int, str),
        (str, int),
        (float, int),
        (bool, str),
        (None, int),
        (int | None, str),
        (str, int | list[int]),
        (list[int], list[str]),
        (list[int], int),
        (dict[str, int], dict[str, str]),
        (dict[str, int], list[int]),
        (Cat, Dog),
        (Cat, int),
        (list[int], Cat),
        (Price, str),
        (list[int | None], list[str]),
    ],
)
def test_what_cannot_become_a_parameter(returned: Any, wanted: Any) -> None:
    assert not may_become(returned, wanted)


@pytest.fixture
def app() -> Drumbeat:
    return Drumbeat("sqlite:////nowhere/jobs.db")


def test_edges_are_those_of_the_jobs_in_their_order(app: Drumbeat) -> None:
    @app.task
    async def step() -> None: ...

    first, second = step.bind(), step.bind()
    third = step.using(after=[second, first]).bind()
    fourth = step.using(after=[third]).bind()
    edges = check_graph([fourth, first, third, second], Registry())
    assert [(edge.child, edge.parent) for edge in edges] == [
        (fourth.id, third.id),
        (third.id, second.id),
        (third.id, first.id),
    ]


def test_a_call_is_there_once(app: Drumbeat) -> None:
    @app.task
    async def step() -> None: ...

    first = step.bind()
    with pytest.raises(InvalidArguments, match="there twice"):
        check_graph([first, first], Registry())


def test_dependencies_of_one_call_have_a_limit(app: Drumbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_EDGES_AT_ONCE", 5)

    @app.task
    async def step() -> None: ...

    parents = [step.bind() for _ in range(3)]
    children = [step.using(after=parents).bind() for _ in range(2)]
    with pytest.raises(InvalidArguments, match="6 dependencies in one call are over the limit of 5"):
        check_graph([*parents, *children], Registry())
    check_graph([*parents, children[0]], Registry())
