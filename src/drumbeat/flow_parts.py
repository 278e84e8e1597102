"""Parts of a workflow: `Node`, and the short forms `chain`, `group`, `chord` and `task.map`. Pure.

app.workflow("report", chain(fetch.bind(1), render, send))
app.workflow("thumbnails", resize.map(images, then=publish))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from drumbeat.codec import JobOutcome, ParentReference, Results
from drumbeat.core.edge import Binding
from drumbeat.core.job import NewJob
from drumbeat.errors import InvalidArguments
from drumbeat.ids import JobId
from drumbeat.names import short_repr

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Link(Protocol[A_contra, R_co]):
    """A task, or `task.using(...)`, that can be called with one argument."""

    def bind(self, value: A_contra, /) -> NewJob[R_co]: ...


class Node(Generic[R_co]):
    """A job of a workflow that is being made. Its result can be an argument of others."""

    __slots__ = ("_job",)

    def __init__(self, job: NewJob[R_co]) -> None:
        self._job = job

    @property
    def id(self) -> JobId:
        return self._job.id

    @property
    def result(self) -> R_co:
        """Stands for what its function will return: `render.bind(node.result)`. Only as a whole argument."""
        return cast("R_co", ParentReference((self.id,), Binding.RESULT))

    @property
    def outcome(self) -> JobOutcome[R_co]:
        """As `result`, for a job that runs also if this one fails, with if_parent_fails="run"."""
        return cast("JobOutcome[R_co]", ParentReference((self.id,), Binding.OUTCOME))

    def __repr__(self) -> str:
        return f"<Node {self._job.task} {self.id}>"


class Group(Generic[R_co]):
    """Calls that run side by side."""

    __slots__ = ("jobs",)

    def __init__(self, jobs: Sequence[NewJob[R_co]]) -> None:
        self.jobs = tuple(jobs)

    @property
    def results(self) -> Results[R_co]:
        """Stands for all their results, for a parameter of type `Results[R]`."""
        return cast("Results[R_co]", self._reference())

    @property
    def result_list(self) -> list[R_co]:
        """As `results`, for a parameter of type `list[R]`: up to 1,000 results."""
        return cast("list[R_co]", self._reference())

    def _reference(self) -> ParentReference:
        return ParentReference(tuple(job.id for job in self.jobs), Binding.RESULTS)

    def __len__(self) -> int:
        return len(self.jobs)

    def __repr__(self) -> str:
        return f"<Group of {len(self.jobs)} calls>"


class Part(Generic[R_co]):
    """Calls of which one is the last: what `chain`, `chord` and `task.map(..., then=...)` give."""

    __slots__ = ("first", "jobs", "last")

    def __init__(self, jobs: Sequence[NewJob[Any]], first: frozenset[JobId], last: NewJob[R_co]) -> None:
        self.jobs = tuple(jobs)
        self.first = first
        """Those that wait for none of the others."""
        self.last = last

    def __repr__(self) -> str:
        return f"<Part of {len(self.jobs)} calls>"


def group(calls: Iterable[NewJob[A]]) -> Group[A]:
    """Calls that run side by side, for `chord` or a workflow."""
    return Group(_check_calls("group", calls))


@overload
def chord(group: Group[A] | Iterable[NewJob[A]], finaliser: Link[Results[A], B]) -> Part[B]: ...
@overload
def chord(group: Group[A] | Iterable[NewJob[A]], finaliser: Link[list[A], B]) -> Part[B]: ...
@overload
def chord(group: Group[A] | Iterable[NewJob[A]], finaliser: Link[Results[JobOutcome[A]], B]) -> Part[B]: ...
@overload
def chord(group: Group[A] | Iterable[NewJob[A]], finaliser: Link[list[JobOutcome[A]], B]) -> Part[B]: ...
def chord(group: Group[Any] | Iterable[NewJob[Any]], finaliser: Link[Any, B]) -> Part[B]:
    """Calls that run side by side, and one of `finaliser` when all have succeeded, which takes their results as `Results[R]`,
    or up to 1,000 of them as `list[R]`. One that is to run although some failed takes `Results[JobOutcome[R]]`:
    `chord(group(calls), report.using(if_parent_fails="run"))`."""
    calls = group.jobs if isinstance(group, Group) else _check_calls("chord", group)
    if not calls:
        raise InvalidArguments("a chord needs one call or more: nothing would start its finaliser", "group")
    last = _link("chord", finaliser, Group(calls).results)
    return Part((*calls, last), frozenset(job.id for job in calls), last)


Start = NewJob[A] | Part[A]


@overload
def chain(first: Start[A], second: Link[A, B], /) -> Part[B]: ...
@overload
def chain(first: Start[A], second: Link[A, B], third: Link[B, C], /) -> Part[C]: ...
@overload
def chain(first: Start[A], second: Link[A, B], third: Link[B, C], fourth: Link[C, D], /) -> Part[D]: ...
@overload
def chain(
    first: Start[A], second: Link[A, B], third: Link[B, C], fourth: Link[C, D], fifth: Link[D, E], /
) -> Part[E]: ...
@overload
def chain(
    first: Start[A],
    second: Link[A, B],
    third: Link[B, C],
    fourth: Link[C, D],
    fifth: Link[D, E],
    sixth: Link[E, Any],
    /,
    *more: Link[Any, Any],
) -> Part[Any]: ...
def chain(first: Start[Any], /, *links: Link[Any, Any]) -> Part[Any]:
    """Calls one after another: each task gets the result of the one before as its first argument.

    chain(fetch.bind(1), render, send.using(queue="mail"))
    """
    given: object = first
    if isinstance(given, Group):
        raise InvalidArguments("chain begins with one call: after a group comes chord(group, finaliser)", "first")
    if isinstance(first, Part):
        jobs, entries, last = list(first.jobs), first.first, first.last
    else:
        _check_calls("chain", [first])
        jobs, entries, last = [first], frozenset({first.id}), first
    for link in links:
        last = _link("chain", link, Node(last).result)
        jobs.append(last)
    return Part(jobs, entries, last)


def _link(form: str, link: Link[Any, Any], value: Any) -> NewJob[Any]:
    if isinstance(link, NewJob) or not hasattr(link, "bind"):
        raise InvalidArguments(f"{form} takes tasks here, such as render or render.using(...), not {short_repr(link)}")
    return link.bind(value)


def list_calls(form: str, calls: Iterable[NewJob[A]]) -> list[NewJob[A]]:
    """Refuse what is no list at all: what is in it is checked by others."""
    if isinstance(calls, NewJob | Part | Group) or not isinstance(calls, Iterable):
        hint = f"; the calls of this one are its .jobs: {form}(part.jobs)" if isinstance(calls, Part | Group) else ""
        raise InvalidArguments(
            f"{form} takes a list of calls, such as [fetch.bind(1), fetch.bind(2)], not {short_repr(calls)}{hint}",
            "calls",
        )
    return list(calls)


def _check_calls(form: str, calls: Iterable[NewJob[A]]) -> list[NewJob[A]]:
    listed = list_calls(form, calls)
    for call in listed:
        if type(call) is not NewJob:
            raise InvalidArguments(f"{form} takes what task.bind(...) gives, not {short_repr(call)}", "calls")
    return listed


class Mapped:
    """The part of a task, also of `task.using(...)`, that makes a call for each of many items."""

    __slots__ = ()

    @overload
    def map(self: Link[A, B], items: Iterable[A], *, then: Link[Results[B], C]) -> Part[C]: ...
    @overload
    def map(self: Link[A, B], items: Iterable[A], *, then: Link[list[B], C]) -> Part[C]: ...
    @overload
    def map(self: Link[A, B], items: Iterable[A], *, then: Link[Results[JobOutcome[B]], C]) -> Part[C]: ...
    @overload
    def map(self: Link[A, B], items: Iterable[A], *, then: Link[list[JobOutcome[B]], C]) -> Part[C]: ...
    @overload
    def map(self: Link[A, B], items: Iterable[A]) -> Group[B]: ...
    def map(
        self: Link[Any, Any], items: Iterable[Any], *, then: Link[Any, Any] | None = None
    ) -> Part[Any] | Group[Any]:
        """A call for each item, up to 100,000, and then one of `then`, which takes all results: a part of a workflow.

            await app.workflow("thumbnails", resize.map(paths, then=publish)).enqueue()

        `then` takes `Results[R]`, read in pages, or up to 1,000 results as `list[R]`.
        """
        calls = Group([self.bind(item) for item in items])
        return calls if then is None else chord(calls, then)
