"""L1, L2, L3, R1: what the holders of locks see. What the store does with their tickets is in ticket_checkers.py."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.proof.excuses import power_cuts
from tests.proof.history import History, LockHeld
from tests.proof.registry import promise


@promise
def lock_tokens_grow(history: History) -> Iterator[str]:
    """L1: each grant has a higher token than those that were entered before it was asked for."""
    grants: dict[str, list[LockHeld]] = defaultdict(list)
    for grant in history.locks:
        grants[grant.lock].append(grant)
    for lock, held in grants.items():
        entered = sorted(held, key=lambda grant: grant.entered_at)
        highest, seen = 0, 0
        for grant in sorted(held, key=lambda grant: grant.asked_at):
            while seen < len(entered) and entered[seen].entered_at < grant.asked_at:
                highest, seen = max(highest, entered[seen].token), seen + 1
            if highest >= grant.token:
                yield f"L1: {lock} was granted with token {grant.token} after {highest}"


@promise
def locks_exclude(history: History) -> Iterator[str]:
    """L2: two blocks of a lock overlap only where the first one's node was disturbed, and was told or died."""
    by_lock: dict[str, list[tuple[float, float, LockHeld]]] = defaultdict(list)
    for grant in history.locks:
        ends = [at for at in (grant.left_at, grant.lost_at) if at is not None]
        by_lock[grant.lock].append((grant.entered_at, min(ends, default=history.ended_at), grant))
    for lock, spans in by_lock.items():
        spans.sort(key=lambda span: span[:2])
        for (_, end, held), (begin, _, other) in pairwise(spans):
            if begin < end and not is_excused(history, held, begin):
                yield f"L2: {lock} was held with token {held.token} on {held.node} when token {other.token} was granted"


def is_excused(history: History, held: LockHeld, at: float) -> bool:
    """Whether the holder need not have known at this time that its lock was lost: it was dead or paused. Where its record
    is not exact, any fault may have kept it from being told."""
    return any(
        (fault.node is None or fault.node == held.node)
        and fault.start <= at
        and (
            fault.end >= held.entered_at - history.grace
            if not held.is_exact
            else (fault.kind in ("kill", "power") and fault.start >= held.entered_at)
            or (fault.kind == "pause" and fault.end >= at)
        )
        for fault in history.disturbances
    )


@promise
def resources_are_fenced(history: History) -> Iterator[str]:
    """L3: a resource that checks tokens never accepts an older one after a newer one."""
    highest: dict[str, int] = defaultdict(int)
    for write in history.writes:
        if write.accepted and write.token < highest[write.resource]:
            yield f"L3: {write.resource} accepted {write.token} after {highest[write.resource]}"
        if write.accepted:
            highest[write.resource] = max(highest[write.resource], write.token)


@promise
def rates_hold(history: History) -> Iterator[str]:
    """R1: in any window of length `per` at most `limit` starts; but for a power cut, which ends what has started."""
    cuts, epoch = power_cuts(history), history.epoch or 0.0
    by_name: dict[tuple[str, int, float], list[float]] = defaultdict(list)
    for grant in history.rates:
        by_name[grant.name, grant.limit, grant.per].append(grant.at)
    for (name, limit, per), times in by_name.items():
        times.sort()
        for first, last in zip(times, times[limit:], strict=False):
            if last - first < per - 0.000_002 and not any(first <= cut + epoch <= last for cut in cuts):
                yield f"R1: {name} had more than {limit} starts in {last - first:.6f} s from {first:.6f}"
