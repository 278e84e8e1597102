"""What a job gets of its parents as arguments: a reference when it is enqueued, a value when it runs.

ParentReference  --stored as edges-->  the result, JobOutcome[R], Results[R] or list[R]
"""

from __future__ import annotations

import asyncio
import typing
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from drumbeat.core.edge import Binding
from drumbeat.core.job import Failure, JobState
from drumbeat.errors import InvalidArguments, WrongContext
from drumbeat.ids import JobId

R_co = TypeVar("R_co", covariant=True)
REFERENCE_INSIDE = (
    "contains the result of another job inside of another value: give it as a whole argument, such as "
    "render.bind(fetched.result), or let the task take several"
)
NOT_KNOWN_YET = (
    "the result of another job is not known yet: give it as a whole argument, such as render.bind(fetched.result), and take of "
    "it there what is needed"
)


class ParentReference:
    """Stands for what other jobs will return. Only as a whole argument.

    A plain class: a tuple or a record would be written as JSON like any other.
    """

    __slots__ = ("binding", "parents")

    def __init__(self, parents: tuple[JobId, ...], binding: Binding) -> None:
        self.parents = parents
        self.binding = binding

    def __repr__(self) -> str:
        count = len(self.parents)
        return f"<{self.binding} of {self.parents[0] if count == 1 else f'{count} jobs'}>"

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidArguments(NOT_KNOWN_YET)

    # Text of it would be stored as an argument like any other.
    __str__ = __format__ = __bool__ = __len__ = __iter__ = __getitem__ = __call__ = __add__ = __radd__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(NOT_KNOWN_YET, name=name, obj=self)


class JobOutcome(msgspec.Struct, Generic[R_co], frozen=True, kw_only=True):
    """How a job ended, for a job that runs although it may have failed: `node.outcome`, with if_parent_fails="run"."""

    id: JobId
    task: str
    state: JobState
    value: R_co | None = None
    """What it returned; None if it has failed."""
    error: Failure | None = None
    """How it failed; None if it has succeeded, or was cancelled without a reason."""

    @property
    def has_succeeded(self) -> bool:
        return self.state is JobState.SUCCEEDED


class ResultPages(Protocol):
    """Where `Results` reads from: (place, value) of the parents after this place, by place; None stands for the first."""

    async def read(self, after: int) -> list[tuple[int, Any]]: ...

    def read_sync(self, after: int) -> list[tuple[int, Any]]: ...


class Results(Generic[R_co]):
    """The results of many parents, in their order, read in pages of 1,000: what a finaliser takes.

        @app.task
        async def add_up(parts: Results[int]) -> int:
            return sum([part async for part in parts])

    In `def` handlers it is a plain iterator. To call such a function in a test: `await add_up(Results([1, 2, 3]))`.
    """

    def __init__(self, values: Sequence[R_co] = ()) -> None:
        self._count = len(values)
        self._pages: ResultPages = _Values(values)
        self.argument: str | None = None
        """Which argument of its job they are; None: they were not given by a worker."""

    def __len__(self) -> int:
        return self._count

    async def __aiter__(self) -> AsyncIterator[R_co]:
        place, left = -1, self._count
        while left > 0 and (page := await self._pages.read(place)):
            for each_place, value in page:
                yield value
                place = each_place
            left -= len(page)

    def __iter__(self) -> Iterator[R_co]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._iterate()
        if isinstance(self._pages, _Values):
            return self._iterate()
        raise WrongContext("iter(results)", "async for ... in results", loop_runs=True)

    def _iterate(self) -> Iterator[R_co]:
        place, left = -1, self._count
        while left > 0 and (page := self._pages.read_sync(place)):
            for each_place, value in page:
                yield value
                place = each_place
            left -= len(page)

    def __repr__(self) -> str:
        return f"<Results of {self._count} jobs>"


class _Values(NamedTuple):
    values: Sequence[Any]

    async def read(self, after: int) -> list[tuple[int, Any]]:
        return self.read_sync(after)

    def read_sync(self, after: int) -> list[tuple[int, Any]]:
        return list(enumerate(self.values))[after + 1 :]


class _Unread:
    async def read(self, after: int) -> list[tuple[int, Any]]:
        return self.read_sync(after)

    def read_sync(self, after: int) -> list[tuple[int, Any]]:
        raise RuntimeError("these results were not given by a worker")


def is_results(hint: Any) -> bool:
    return (typing.get_origin(hint) or hint) is Results


def is_outcome(hint: Any) -> bool:
    return (typing.get_origin(hint) or hint) is JobOutcome


def item_type(hint: Any) -> Any:
    """R of Results[R], list[R] or JobOutcome[R]."""
    inner = typing.get_args(hint)
    return inner[0] if inner else Any


def results_of_count(stored: object) -> Results[Any]:
    """What is stored of `Results` is their number; a worker adds which argument they are."""
    fields: dict[str, Any] = stored if isinstance(stored, dict) else {"count": stored}
    count = fields.get("count")
    if type(count) is not int:
        raise ValueError("takes the results of other jobs, as from chord(...) or task.map(..., then=...)")
    results = Results[Any]()
    results._count, results._pages, results.argument = count, _Unread(), fields.get("argument")
    return results


def attach_pages(results: Results[Any], pages: ResultPages) -> None:
    results._pages = pages
