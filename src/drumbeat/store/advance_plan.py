"""What one step of `advance` does, decided from releases and edges that the SQL engines have loaded. Pure."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

import msgspec

from drumbeat.core.dependencies import EdgeEffect, IfParentFails, ParentEvent, edge_effect
from drumbeat.core.uniqueness import KeyedRow, UniqueKeys
from drumbeat.ids import JobId
from drumbeat.store.dependency_rows import JudgedRow, ReleaseRow, group_releases, judge_stored_edge


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


class CancelledChildRow(KeyedRow, frozen=True, array_like=True):
    """A child that a parent's failure cancelled."""

    is_workflow_cancelled: bool | int


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
    followed: int
    is_cut: bool
    """There is more to be followed."""


def plan_advance(rows: Sequence[FollowedRow], limit: int) -> AdvancePlan:
    """`rows`: what is to be followed, in order, one more than `limit` if there is more. Followed are either ends or replays,
    as far as they follow each other: a child that one parent both cancels and revives is handled in two steps."""
    if not rows:
        return AdvancePlan({}, {}, [], [], None, 0, is_cut=False)
    is_replay = rows[0].event is ParentEvent.REPLAYED
    followed = list(takewhile(lambda row: (row.event is ParentEvent.REPLAYED) is is_replay, rows[:limit]))
    done, partial = list(dict.fromkeys(row.seq for row in followed)), None
    if len(followed) < len(rows) and rows[len(followed)].seq == done[-1]:
        seq = done.pop()
        partial = (seq, sum(row.seq == seq for row in followed))
    plan = AdvancePlan({}, {}, [], done, partial, len(followed), is_cut=len(followed) < len(rows))
    known: dict[tuple[IfParentFails | None, int | None, ParentEvent, int], EdgeEffect] = {}  # few, for many edges
    for row in followed:
        kind = (row.if_fails, row.edge_life, row.event, row.life)
        effect = known.get(kind)
        if effect is None:
            effect = known[kind] = _effect_of(row)
        if row.child is None or effect is EdgeEffect.NOTHING:
            continue
        if effect is EdgeEffect.MET:
            plan.met[row.child] = plan.met.get(row.child, 0) + 1
        elif effect is EdgeEffect.CANCEL:
            plan.cancelled.setdefault(row.child, (row.parent, row.event))
        else:
            plan.revived.append((row.child, row.parent))
    return plan


def _effect_of(row: FollowedRow) -> EdgeEffect:
    if row.if_fails is None or row.edge_life is None:
        return EdgeEffect.NOTHING
    return edge_effect(row.if_fails, row.edge_life, row.event, row.life)


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
        elif keys.find_holder(child) is None and not child.is_workflow_cancelled:
            keys.take(child)
            plan.revived[child.id] = open_parents
    return plan
