"""What the SQL engines write about dependencies, decided from rows that they have loaded. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

import msgspec

from drumbeat.core.dependencies import (
    Binding,
    EdgeEffect,
    IfParentFails,
    Miscount,
    NewEdge,
    NewGraph,
    ParentEvent,
    ParentLink,
    ParentResult,
    edge_effect,
    judge_edge,
    parent_event,
    parent_failure,
)
from drumbeat.core.job import LIVE_STATES, AddResult, Failure, JobState, NewJob
from drumbeat.core.uniqueness import KeyedRow, UniqueKeys
from drumbeat.errors import UniqueConflict
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


class FollowedRow(msgspec.Struct, frozen=True, array_like=True):
    """A release with one of the edges that are still to be followed."""

    seq: int
    parent: JobId
    event: ParentEvent
    life: int
    child: JobId | None
    """None: the release has no edge (left), or one that cannot be read."""
    if_fails: IfParentFails | None
    edge_life: int | None


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


class CancelledChildRow(KeyedRow, frozen=True, array_like=True):
    """A child that a parent's failure cancelled."""

    is_workflow_cancelled: bool | int


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
        values = msgspec.structs.asdict(self)
        del values["child"]
        return ParentResult(**values | {"error": read_failure(self.error)})


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


class EdgeRow(NamedTuple):
    parent: JobId
    child: JobId
    place: int
    life: int
    if_fails: str
    binding: str
    argument: str


class GraphPlan(msgspec.Struct, frozen=True):
    """What is stored of the new jobs of a graph, beside the jobs themselves."""

    edges: list[EdgeRow]
    open_parents: dict[JobId, int]
    """Of each child."""
    cancelled: dict[JobId, tuple[JobId, Failure]]
    """Children that go to history at once: for which parent, and why."""
    live_parents: list[JobId]
    """Parents that were stored before and have not ended: they are to be flagged, in the order of ids."""
    new_parents: set[JobId]
    """New jobs that are parents and have not been cancelled."""
    binding: set[JobId]
    """Children that bind something."""
    kept: list[JobId]
    """Parents that have ended and whose result or outcome a child binds."""


def refuse_conflicts(graph: NewGraph, answers: Iterable[AddResult]) -> None:
    """Refuse a graph with a job whose unique key another one holds, if it must be stored whole or others wait for that job."""
    taken = [
        (job, answer.id)
        for job, answer in zip(graph.jobs, answers, strict=True)
        if not answer.created and answer.id != job.id
    ]
    if not taken:
        return
    is_whole = graph.workflow is not None or graph.step is not None
    named = {edge.parent for edge in graph.edges}
    for job, holder in taken:
        if is_whole or job.id in named:
            raise UniqueConflict(job.id, job.key or "", holder, done="stored")


def outside_parents(jobs: Iterable[NewJob], edges: Iterable[NewEdge]) -> list[JobId]:
    """The parents of these new jobs that are not among them, in the order of ids."""
    new = {job.id for job in jobs}
    return sorted({edge.parent for edge in edges if edge.child in new and edge.parent not in new})


def plan_graph(
    jobs: Collection[NewJob],
    edges: Iterable[NewEdge],
    parents: Mapping[JobId, ParentRow],
    releases: Mapping[JobId, Sequence[ReleaseRow]] | None = None,
) -> GraphPlan:
    """`jobs`: those that are new; of the edges only theirs count. `parents`: the others, all of them. `releases`: those that
    are left of these parents: what one of them will do to a child is not done by this plan, too."""
    new = {job.id: job.task for job in jobs}
    plan = GraphPlan([], {}, {}, [], set(), set(), [])
    flagged: dict[JobId, None] = {}
    kept: dict[JobId, None] = {}
    for child, its_edges in groupby((edge for edge in edges if edge.child in new), lambda edge: edge.child):
        named: set[JobId] = set()
        open_parents = plan.open_parents.get(child, 0)
        for edge in its_edges:
            if edge.parent in named:
                continue
            parent = None if edge.parent in new else parents[edge.parent]
            life = 0 if parent is None else parent.replays
            facts = (edge.if_fails.value, edge.binding.value, edge.argument)
            plan.edges.append(EdgeRow(edge.parent, child, len(named), life, *facts))
            named.add(edge.parent)
            if edge.binding:
                plan.binding.add(child)
            if parent is None:
                plan.new_parents.add(edge.parent)
                open_parents += 1
                continue
            if parent.state in LIVE_STATES:
                flagged[parent.id] = None
            elif edge.binding:
                kept[parent.id] = None
            effect = _judge(edge, parent, () if releases is None else releases.get(parent.id, ()))
            open_parents += effect is EdgeEffect.NOTHING
            if effect is EdgeEffect.CANCEL and child not in plan.cancelled:
                event = parent_event(parent.state, is_letter=bool(parent.is_letter))
                plan.cancelled[child] = (parent.id, parent_failure(parent.id, parent.task, event))
        plan.open_parents[child] = open_parents
    if plan.cancelled:
        _cancel_descendants(plan, new, kept)
    plan.live_parents.extend(sorted(flagged))
    plan.kept.extend(kept)
    return plan


def _judge(edge: NewEdge, parent: ParentRow, releases: Sequence[ReleaseRow]) -> EdgeEffect:
    effect = judge_edge(edge.if_fails, parent.replays, parent.state, parent.replays, is_letter=bool(parent.is_letter))
    if effect is EdgeEffect.MET and is_still_followed(edge.if_fails, parent.replays, edge.child, releases):
        return EdgeEffect.NOTHING
    return effect


def is_still_followed(if_fails: IfParentFails, edge_life: int, child: JobId, releases: Sequence[ReleaseRow]) -> bool:
    """Whether one of these releases of the parent will meet this edge: until then it counts as open."""
    return any(
        child > each.after_child and edge_effect(if_fails, edge_life, each.event, each.life) is EdgeEffect.MET
        for each in releases
    )


def _cancel_descendants(plan: GraphPlan, new: Mapping[JobId, str], kept: dict[JobId, None]) -> None:
    """What becomes of the children of new jobs that are cancelled at once: they are among the new jobs, too."""
    children: dict[JobId, list[EdgeRow]] = {}
    for edge in plan.edges:
        if edge.parent in new:
            children.setdefault(edge.parent, []).append(edge)
    queue = list(plan.cancelled)
    for parent in queue:  # which grows
        plan.new_parents.discard(parent)
        for edge in children.get(parent, ()):
            if edge.binding:
                kept[parent] = None
            if judge_edge(IfParentFails(edge.if_fails), 0, JobState.CANCELLED, 0) is EdgeEffect.MET:
                plan.open_parents[edge.child] -= 1
            elif edge.child not in plan.cancelled:
                failure = parent_failure(parent, new[parent], ParentEvent.CANCELLED)
                plan.cancelled[edge.child] = (parent, failure)
                queue.append(edge.child)


class AdvancePlan(msgspec.Struct, frozen=True):
    """What one step of `advance` does."""

    met: dict[JobId, int]
    """Children, and how many of their parents ended."""
    cancelled: dict[JobId, tuple[JobId, ParentEvent]]
    """Children, and for which parent."""
    revived: list[tuple[JobId, JobId]]
    """Children that are to wait again if it was this parent whose failure cancelled them."""
    done: list[int]
    """Releases that were followed to their end."""
    partial: tuple[int, int] | None
    """A release that was not, and how many of its edges were followed."""
    is_cut: bool
    """There is more to be followed."""


def plan_advance(rows: Sequence[FollowedRow], limit: int) -> AdvancePlan:
    """`rows`: what is to be followed, in order, one more than `limit` if there is more. Followed are either ends or replays,
    as far as they follow each other: a child that one parent both cancels and revives is handled in two steps."""
    if not rows:
        return AdvancePlan({}, {}, [], [], None, is_cut=False)
    is_replay = rows[0].event is ParentEvent.REPLAYED
    followed = list(takewhile(lambda row: (row.event is ParentEvent.REPLAYED) is is_replay, rows[:limit]))
    done, partial = list(dict.fromkeys(row.seq for row in followed)), None
    if len(followed) < len(rows) and rows[len(followed)].seq == done[-1]:
        seq = done.pop()
        partial = (seq, sum(row.seq == seq for row in followed))
    plan = AdvancePlan({}, {}, [], done, partial, is_cut=len(followed) < len(rows))
    for row in followed:
        if row.child is None or row.if_fails is None or row.edge_life is None:
            continue
        match edge_effect(row.if_fails, row.edge_life, row.event, row.life):
            case EdgeEffect.MET:
                plan.met[row.child] = plan.met.get(row.child, 0) + 1
            case EdgeEffect.CANCEL:
                plan.cancelled.setdefault(row.child, (row.parent, row.event))
            case EdgeEffect.REVIVE:
                plan.revived.append((row.child, row.parent))
            case EdgeEffect.NOTHING:
                pass
    return plan


class RevivalPlan(msgspec.Struct, frozen=True):
    """What becomes of cancelled children whose parent lives again."""

    revived: dict[JobId, int]
    """Those that wait again, or are due: how many of their parents are open."""
    held: dict[JobId, JobId]
    """Those that stay cancelled because another parent has failed, too: from now on it depends on that one's replay."""


def plan_revivals(
    children: Iterable[CancelledChildRow], edges: Iterable[JudgedRow], releases: Iterable[ReleaseRow], keys: UniqueKeys
) -> RevivalPlan:
    """`edges`: of these children; `releases`: of their parents; `keys`: who holds their unique keys."""
    left = group_releases(releases)
    by_child: dict[JobId, list[JudgedRow]] = {}
    for edge in edges:
        by_child.setdefault(edge.child, []).append(edge)
    plan = RevivalPlan({}, {})
    for child in children:
        effects = [(edge, judge_stored_edge(edge, left.get(edge.parent, ()))) for edge in by_child.get(child.id, ())]
        failed = next((edge.parent for edge, effect in effects if effect is EdgeEffect.CANCEL), None)
        open_parents = sum(effect is EdgeEffect.NOTHING for _, effect in effects)
        if failed is not None:
            plan.held[child.id] = failed
        elif keys.find_holder(child) is None and (open_parents or not child.is_workflow_cancelled):
            keys.take(child)
            plan.revived[child.id] = open_parents
    return plan


def group_results(bound: Iterable[BoundRow]) -> dict[JobId, list[ParentResult]]:
    """What each child gets, in the order of its edges."""
    found: dict[JobId, list[ParentResult]] = {}
    for row in bound:
        found.setdefault(row.child, []).append(row.to_record())
    for child, results in found.items():
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
