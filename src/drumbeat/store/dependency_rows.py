"""Dependencies as rows of the SQL engines, and what is told of them. Pure; see `graph_plan` and `advance_plan`."""

from collections.abc import Iterable, Sequence

import msgspec

from drumbeat.core.dependencies import (
    Binding,
    EdgeEffect,
    IfParentFails,
    Miscount,
    ParentEvent,
    ParentLink,
    ParentResult,
    edge_effect,
    judge_edge,
)
from drumbeat.core.job import JobState
from drumbeat.ids import JobId
from drumbeat.store.malformed import read_failure
from drumbeat.store.protocol.dependencies import MAX_BOUND_PARENTS


class ParentRow(msgspec.Struct, frozen=True, array_like=True):
    """A job that is stored, as a parent."""

    id: JobId
    task: str
    state: JobState
    replays: int
    is_letter: bool | int
    """It is a dead letter; a discarded one is in history."""


class ReleaseRow(msgspec.Struct, frozen=True, array_like=True):
    """A release that is left: its edges are followed from the first child on that is greater than `after_child`."""

    seq: int
    parent: JobId
    event: ParentEvent
    life: int
    after_child: str


class JudgedRow(msgspec.Struct, frozen=True, array_like=True):
    """An edge, with what its parent is now."""

    child: JobId
    parent: JobId
    if_fails: IfParentFails
    life: int
    state: JobState | None
    """None: it is pruned."""
    replays: int | None
    is_letter: bool | int


class BoundRow(msgspec.Struct, frozen=True, array_like=True):
    """An edge that binds something, with what is kept of the parent."""

    child: JobId
    parent: JobId
    task: str
    binding: Binding
    argument: str
    place: int
    state: JobState | None
    result: str | None
    result_error: str | None
    error: str | None

    def to_record(self) -> ParentResult:
        return ParentResult(
            parent=self.parent,
            task=self.task,
            binding=self.binding,
            argument=self.argument,
            place=self.place,
            state=self.state,
            result=self.result,
            result_error=self.result_error,
            error=read_failure(self.error),
        )


class LinkRow(msgspec.Struct, frozen=True, array_like=True):
    """An edge with both of its jobs; a task is empty, and a state None, of one that is pruned."""

    parent: JobId
    parent_task: str
    parent_state: JobState | None
    replays: int
    is_letter: bool | int
    child: JobId
    child_task: str
    child_state: JobState | None
    is_waiting: bool | int
    """The child waits for parents."""
    if_fails: IfParentFails
    life: int
    binding: Binding
    argument: str
    place: int

    @property
    def is_open(self) -> bool:
        if not self.is_waiting or self.parent_state is None:
            return False
        is_letter = bool(self.is_letter)
        effect = judge_edge(self.if_fails, self.life, self.parent_state, self.replays, is_letter=is_letter)
        return effect is EdgeEffect.NOTHING

    def to_parent(self) -> ParentLink:
        return self._link(self.parent, self.parent_task, self.parent_state)

    def to_child(self) -> ParentLink:
        return self._link(self.child, self.child_task, self.child_state)

    def _link(self, id: JobId, task: str, state: JobState | None) -> ParentLink:
        facts = {"if_fails": self.if_fails, "binding": self.binding, "argument": self.argument}
        return ParentLink(id=id, task=task, state=state, is_open=self.is_open, **facts)  # type: ignore[arg-type]


class CountedRow(msgspec.Struct, frozen=True, array_like=True):
    """A waiting job, and how many parents it has of one kind."""

    id: JobId
    counted: int | None
    if_fails: IfParentFails | None
    """None: it has no parents at all."""
    life: int | None
    state: JobState | None
    replays: int | None
    is_letter: bool | int
    number: int


def is_still_followed(if_fails: IfParentFails, edge_life: int, child: JobId, releases: Sequence[ReleaseRow]) -> bool:
    """Whether one of these releases of the parent will meet this edge: until then it counts as open."""
    return any(
        child > each.after_child and edge_effect(if_fails, edge_life, each.event, each.life) is EdgeEffect.MET
        for each in releases
    )


def group_results(bound: Iterable[BoundRow]) -> dict[JobId, list[ParentResult]]:
    """What each child gets, in the order of its edges."""
    found: dict[JobId, list[ParentResult]] = {}
    for row in bound:
        found.setdefault(row.child, []).append(row.to_record())
    for child, results in found.items():
        if len(results) == 1:
            continue
        results.sort(key=lambda result: result.place)
        singles = [result for result in results if result.binding is not Binding.RESULTS]
        if len(singles) > MAX_BOUND_PARENTS:
            last = singles[MAX_BOUND_PARENTS - 1].place
            found[child] = [each for each in results if each.binding is Binding.RESULTS or each.place <= last]
    return found


def find_miscounts(counts: Iterable[CountedRow]) -> list[Miscount]:
    """Those whose count is not the number of their open parents."""
    counted: dict[JobId, int] = {}
    actual: dict[JobId, int] = {}
    for row in counts:
        counted[row.id] = row.counted or 0
        actual.setdefault(row.id, 0)
        if row.if_fails is None or row.life is None:
            continue
        edge = JudgedRow(row.id, JobId(""), row.if_fails, row.life, row.state, row.replays, row.is_letter)
        if judge_stored_edge(edge) is EdgeEffect.NOTHING:
            actual[row.id] += row.number
    return [
        Miscount(id=id, counted=number, actual=actual[id]) for id, number in counted.items() if number != actual[id]
    ]


def sort_parents(links: Iterable[LinkRow], limit: int) -> list[ParentLink]:
    """Open ones first, then by place."""
    found = sorted({link.place: link for link in links}.values(), key=lambda link: (not link.is_open, link.place))
    return [link.to_parent() for link in found[:limit]]


def judge_stored_edge(edge: JudgedRow, releases: Sequence[ReleaseRow] = ()) -> EdgeEffect:
    """What an edge is worth now; a parent that is pruned counts as met."""
    if edge.state is None or edge.replays is None:
        return EdgeEffect.MET
    is_letter = bool(edge.is_letter)
    effect = judge_edge(edge.if_fails, edge.life, edge.state, edge.replays, is_letter=is_letter)
    if effect is EdgeEffect.MET and is_still_followed(edge.if_fails, edge.life, edge.child, releases):
        return EdgeEffect.NOTHING
    return effect


def group_releases(releases: Iterable[ReleaseRow]) -> dict[JobId, list[ReleaseRow]]:
    """By parent."""
    found: dict[JobId, list[ReleaseRow]] = {}
    for each in releases:
        found.setdefault(each.parent, []).append(each)
    return found
