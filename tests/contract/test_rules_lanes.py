"""Every engine deals places to lanes, and leaves lanes behind, as core/lanes.py says: random lines without an order.

The SQL engines call these rules; Redis repeats them inside its scripts. What an order does is in test_lanes.py and
test_lanes_model.py: there the next look may be too early, which these comparisons do not allow.
"""

import os
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from drumbeat.core.claim import ClaimedJob, ClaimResult
from drumbeat.core.job import OutcomeKind
from drumbeat.core.lanes import (
    LaneShare,
    LaneState,
    LineState,
    bounds_of,
    deal,
    find_line_room,
    is_limited,
    lane_name,
    settle,
    split_lane,
    start_line,
)
from drumbeat.core.limits import Bounds, GroupInfo, LineDeclaration, LinePolicy, drop_old_starts
from drumbeat.durations import to_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.protocol import Store
from tests.conftest import ENGINES
from tests.contract.conftest import NEWEST
from tests.contract.lanes import asking, finish
from tests.contract.making import HOUR, exchange, new_job, worker
from tests.contract.rules import load

CASES = 60
LOOK_AGAIN_US = 5_000
"""A server that serves many at once says so: what is ready and was not given may be another's at this moment."""
ROUNDS = 12
GROUPS = ("", "a", "b c", "d", "é")
KINDS = (OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.RELEASED, OutcomeKind.DEAD)


@pytest.fixture(params=ENGINES if os.environ.get("DRUMBEAT_FULL") else NEWEST)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class PendingJob(msgspec.Struct, frozen=True, order=True):
    """In the order in which its lane gives it."""

    priority: int
    run_at: int
    id: JobId


class QueueModel:
    """A queue with lines, and what the rules make of it."""

    def __init__(self, queue: str, policies: dict[str, LinePolicy]) -> None:
        self.queue = queue
        self.lines = {name: LineState(name, policy) for name, policy in sorted(policies.items())}
        self.lanes: dict[str, LaneState] = {}
        self.pending: dict[str, list[PendingJob]] = {}
        self.running: dict[JobId, tuple[str, ClaimedJob]] = {}

    def enter(self, lane: str, job: PendingJob) -> None:
        old = self.lanes.get(lane, LaneState(lane))
        head_at = job.run_at if old.head_at is None else min(old.head_at, job.run_at)
        self.lanes[lane] = msgspec.structs.replace(old, head_at=head_at, levels=old.levels | 1 << job.priority)
        self.pending.setdefault(lane, []).append(job)
        self.pending[lane].sort()

    def leave(self, id: JobId) -> str:
        lane, _ = self.running.pop(id)
        self.lanes[lane] = msgspec.structs.replace(self.lanes[lane], running=self.lanes[lane].running - 1)
        for name in {"", split_lane(lane)[0]} & self.lines.keys():
            self.lines[name] = msgspec.structs.replace(self.lines[name], running=self.lines[name].running - 1)
        return lane

    def lanes_of(self, line: str) -> list[LaneState]:
        return [lane for name, lane in sorted(self.lanes.items()) if split_lane(name)[0] == line]

    def ready(self, limit: int, now: int) -> dict[str, list[LaneState]]:
        """The lanes that a claim looks at."""
        if "" in self.lines and not find_line_room(self.lines[""], now):
            return {}
        found: dict[str, list[LaneState]] = {}
        for name, line in self.lines.items():
            due = [
                (lane.ready_at, lane.name, lane)
                for lane in self.lanes_of(name)
                if lane.ready_at is not None and lane.ready_at <= now
            ]
            if due and find_line_room(line, now):
                found[name] = [lane for _, _, lane in sorted(due, key=lambda each: each[:2])[:limit]]
        return found

    def shares(self, limit: int, slots: int, now: int) -> Iterator[list[list[LaneShare]]]:
        """What may be dealt: which line is first depends on the moment."""
        ready = self.ready(limit, now)
        for rotation in range(max(1, len(ready))):
            yield deal(self.lines, ready, limit, slots, now + rotation)

    def jobs_of(self, share: LaneShare, now: int) -> list[PendingJob]:
        return [job for job in self.pending[share.lane.name] if job.run_at <= now][: share.wanted]

    def apply(self, dealt: list[list[LaneShare]], now: int) -> None:
        total = 0
        for shares in dealt:
            line = self.lines[shares[0].line]
            started = 0
            for position, share in enumerate(shares):
                got = self.jobs_of(share, now)
                left = [job for job in self.pending[share.lane.name] if job not in got]
                self.pending[share.lane.name] = left
                next_at = min((job.run_at for job in left), default=None)
                levels = sum({1 << job.priority for job in left})
                self.lanes[share.lane.name] = settle(
                    share.lane, line.policy, share.wanted, len(got), next_at, levels, now, position - len(shares)
                )
                started += len(got)
            if line.name:
                self.lines[line.name] = start_line(line, started, now)
            total += started
        if "" in self.lines:
            self.lines[""] = start_line(self.lines[""], total, now)

    def expect(self, lane: LaneState, now: int) -> dict[str, object]:
        """What people must see of it."""
        bounds = bounds_of(lane, self.lines[split_lane(lane.name)[0]].policy)
        return {
            "waiting": len(self.pending[lane.name]),
            "running": lane.running,
            "bounds": bounds,
            "starts_in_window": sum(count for _, count in drop_old_starts(bounds, lane.starts, now)),
            "head_at": lane.head_at,
            "open_at": lane.open_at,
        }


def draw_bounds(random: Random, most: int) -> Bounds:
    concurrency = random.choice([None, None, random.randint(1, most)])
    if random.random() < 0.3:
        return Bounds(concurrency, random.randint(1, most), HOUR)
    return Bounds(concurrency)


def draw_policy(random: Random) -> LinePolicy:
    fair = random.random() < 0.6
    weights = {group: random.randint(1, 4) for group in GROUPS if random.random() < 0.4} if fair else {}
    return LinePolicy(whole=draw_bounds(random, 8), each=draw_bounds(random, 4), fair=fair, weights=weights)


async def declare_lines(store: Store, random: Random, queue: str) -> QueueModel:
    policies = {name: draw_policy(random) for name in random.sample(["", "one", "two"], random.randint(1, 3))}
    lines = [LineDeclaration(queue=queue, line=name, policy=policy) for name, policy in policies.items()]
    await store.limits.declare(lines, 1)
    return QueueModel(queue, policies)


async def add_some(store: Store, random: Random, model: QueueModel, first: int) -> None:
    jobs = []
    for number in range(random.randint(0, 12)):
        line, group = random.choice(list(model.lines)), random.choice(GROUPS)
        run_at = first + number + (0 if random.random() < 0.8 else 4 * 10**15)
        options: dict[str, Any] = {
            "queue": model.queue,
            "group": group,
            "lane": lane_name(line, group),
            "run_at": run_at,
        }
        job = new_job(priority=random.choice([0, 5, 5, 9]), **options)
        model.enter(job.lane, PendingJob(job.priority, run_at, job.id))
        jobs.append(job)
    if jobs:
        await store.jobs.add(jobs)


async def end_some(store: Store, random: Random, model: QueueModel, instance: InstanceId) -> None:
    ended = [job for _, (_, job) in sorted(model.running.items()) if random.random() < 0.5]
    kinds = [random.choice(KINDS) for _ in ended]
    for kind in KINDS:
        jobs = [job for job, its in zip(ended, kinds, strict=True) if its is kind]
        await finish(store, instance, *jobs, kind=kind, delay=random.choice([0, HOUR]))
    records = await load(store, [job.id for job in ended])
    for job, kind in zip(ended, kinds, strict=True):
        lane = model.leave(job.id)
        if kind in (OutcomeKind.RETRY, OutcomeKind.RELEASED):
            model.enter(lane, PendingJob(job.priority, to_us(records[job.id].run_at), job.id))


def check_claim(model: QueueModel, answer: ClaimResult, limit: int, slots: int | None, case: object) -> None:
    """It took what may have been dealt; the model goes on with that."""
    claimed = {job.id for job in answer.jobs}
    for dealt in model.shares(limit, limit if slots is None else slots, answer.now):
        picked = {
            job.id: share.lane.name for shares in dealt for share in shares for job in model.jobs_of(share, answer.now)
        }
        if picked.keys() == claimed:
            break
    else:
        pytest.fail(f"{case}: {len(claimed)} jobs, not as dealt: {dealt}")
    model.apply(dealt, answer.now)
    model.running |= {job.id: (picked[job.id], job) for job in answer.jobs}
    left = (limit if slots is None else slots) - sum(limited(model, picked[id]) for id in claimed)
    if len(claimed) < limit or slots is not None:
        check_rest(model, answer, left, len(claimed) == limit, case)


def limited(model: QueueModel, lane: str) -> bool:
    whole = model.lines.get("")
    return is_limited(model.lines[split_lane(lane)[0]].policy, None if whole is None else whole.policy)


def check_rest(model: QueueModel, answer: ClaimResult, slots: int, is_filled: bool, case: object) -> None:
    """What a claim says of the rest; one that was filled does not say when to ask again."""
    ready = [lane.name for lanes in model.ready(1_000, answer.now).values() for lane in lanes]
    without_slot = [lane for lane in ready if slots <= 0 and limited(model, lane)]
    assert answer.has_limited == bool(without_slot), case
    is_due = answer.next_due_at is not None and answer.next_due_at <= answer.now + LOOK_AGAIN_US
    assert is_filled or is_due == (len(ready) > len(without_slot)), case


async def check_groups(store: Store, model: QueueModel, now: int, case: object) -> None:
    for name in model.lines:
        found: list[GroupInfo] = await store.limits.list_groups(model.queue, name)
        expected = {split_lane(lane.name)[1]: model.expect(lane, now) for lane in model.lanes_of(name)}
        seen = {each.group: {field: getattr(each, field) for field in expected[each.group]} for each in found}
        assert seen == expected, case
    infos = {each.line: each for each in await store.limits.list_lines() if each.queue == model.queue}
    for name, line in model.lines.items():
        whole = line.policy.whole
        if whole.concurrency is not None:
            assert infos[name].running == line.running, case
        starts = sum(count for _, count in drop_old_starts(whole, line.starts, now))
        assert infos[name].starts_in_window == starts, case


async def test_every_claim_takes_and_leaves_what_the_rules_say(store: Store) -> None:
    instance = await worker(store)
    for seed in range(CASES):
        random = Random(seed)
        model = await declare_lines(store, random, f"q{seed}")
        for number in range(ROUNDS):
            case = (seed, number)
            await add_some(store, random, model, 1_000 * number + 1)
            limit = random.choice([1, 2, 3, 5, 8, 20])
            slots = random.choice([None, None, 0, 1, 3])
            answer = await exchange(store, instance, [], asking(model.queue, limit=limit, slots=slots))
            check_claim(model, answer, limit, slots, case)
            await check_groups(store, model, answer.now, case)
            await end_some(store, random, model, instance)
