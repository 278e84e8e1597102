"""Limits against a pure model: random calls; after each claim every limit holds, the right jobs of each lane were taken, and
none that could be claimed is left beside free places.

Time is left out but for rates: jobs are due at once or not for an hour.
"""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from drumbeat.clock import SYSTEM
from drumbeat.core.claim import ClaimedJob, ClaimRequest
from drumbeat.core.job import OutcomeKind
from drumbeat.core.lanes import lane_name
from drumbeat.core.limits import Bounds, LineDeclaration, LinePolicy
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.protocol import Store
from tests.conftest import ENGINES, open_fresh
from tests.contract.conftest import NEWEST
from tests.contract.making import HOUR, new_instance, new_job, outcome

GROUPS = ("", "a", "b c")
LINES = ("plain", "", "each", "whole", "held", "skipped", "rated")
PER = 100_000
UNBLOCKS = "task:unknown"
KINDS = (
    OutcomeKind.SUCCEEDED,
    OutcomeKind.RETRY,
    OutcomeKind.RELEASED,
    OutcomeKind.SNOOZED,
    OutcomeKind.DEAD,
    OutcomeKind.BLOCKED,
    OutcomeKind.CANCELLED,
)


PICK = st.integers(0, 1_000)
"""Which of several: not drawn from them, because what a claim got depends on the time."""


def pick(ids: Iterable[JobId], number: int) -> JobId:
    listed = sorted(ids)
    return listed[number % len(listed)]


class Shadow:
    """What the model knows of a job."""

    def __init__(self, id: JobId, line: str, group: str, priority: int, order: int, *, is_due: bool) -> None:
        self.id = id
        self.line = line
        self.group = group
        self.priority = priority
        self.order = order
        self.place = order
        self.is_due = is_due
        self.state = "pending"
        self.is_blocked = False
        self.is_cancelled = False
        self.instance: InstanceId | None = None

    @property
    def lane(self) -> str:
        return "" if self.line == "plain" else lane_name(self.line, self.group)

    @property
    def is_waiting(self) -> bool:
        return self.state == "pending" and not self.is_blocked


def least(*numbers: int | None) -> int:
    return min((number for number in numbers if number is not None), default=1_000_000)


class LimitedJobs(RuleBasedStateMachine):
    engine = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.store: Store = self.run(open_fresh(self.engine, Path(self.folder.name)))
        self.jobs: dict[JobId, Shadow] = {}
        self.claims: dict[JobId, ClaimedJob] = {}
        self.starts: dict[str, list[int]] = {}
        self.policies: dict[str, LinePolicy] = {}
        self.exceptions: dict[str, Bounds] = {}
        self.version = 0
        self.order = 0

    def run(self, call: Any) -> Any:
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        if self.policies:
            assert self.run(self.store.limits.sweep(0, 1_000))[1] == 0, "a count has drifted"
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    # The model's rules.

    def running(self, *, line: str | None = None, lane: str | None = None) -> int:
        return sum(
            job.state == "running" and bool(job.lane) and line in (None, job.line) and lane in (None, job.lane)
            for job in self.jobs.values()
        )

    def bounds(self, job: Shadow) -> Bounds:
        policy = self.policies[job.line]
        bounds = self.exceptions.get(job.lane, policy.each)
        return Bounds(1, bounds.rate, bounds.per) if policy.order else bounds

    def room(self, job: Shadow) -> int:
        """How many jobs of its lane may start, but for rates."""
        limits = [(self.bounds(job).concurrency, self.running(lane=job.lane))]
        if job.line:
            limits.append((self.policies[job.line].whole.concurrency, self.running(line=job.line)))
        limits.append((self.policies[""].whole.concurrency, self.running()))
        return least(*(limit - running for limit, running in limits if limit is not None))

    def candidates(self, lane: str) -> list[Shadow]:
        """The jobs that a lane may give now, in its order."""
        waiting = [job for job in self.jobs.values() if job.is_waiting and job.lane == lane]
        order = self.policies[waiting[0].line].order if waiting and lane else ""
        if order:
            waiting.sort(key=lambda job: (job.place, job.id))
            return [job for job in (waiting[:1] if order == "hold" else waiting) if job.is_due]
        return sorted((job for job in waiting if job.is_due), key=lambda job: (job.priority, job.order, job.id))

    def is_limited(self, line: str) -> bool:
        if line == "plain":
            return False
        policy = self.policies[line]
        bounds = (policy.each, policy.whole, self.policies[""].whole)
        return bool(policy.order) or not all(each.is_open for each in bounds)

    def next_order(self) -> int:
        self.order += 1
        return self.order

    # The calls.

    @initialize(whole=st.sampled_from([None, 4]), fair=st.booleans())
    def declare_all(self, whole: int | None, fair: bool) -> None:
        self.worker: InstanceId = self.run(self.register())
        self.policies = {
            "": LinePolicy(whole=Bounds(whole), each=Bounds(2), fair=fair),
            "each": LinePolicy(each=Bounds(2), fair=fair, weights={"a": 3} if fair else {}),
            "whole": LinePolicy(whole=Bounds(2), each=Bounds(None), fair=fair),
            "held": LinePolicy(order="hold"),
            "skipped": LinePolicy(order="skip"),
            "rated": LinePolicy(each=Bounds(None, 2, PER)),
        }
        self.run(self.declare())

    async def declare(self) -> None:
        self.version += 1
        lines = [LineDeclaration(queue="q", line=line, policy=policy) for line, policy in self.policies.items()]
        await self.store.limits.declare(lines, self.version)

    async def register(self) -> InstanceId:
        instance = new_instance(queues=("q",))
        await self.store.instances.register(instance)
        return instance.id

    @rule(line=st.sampled_from(["each", "whole", ""]), limit=st.sampled_from([1, 2, 3, None]), whole=st.booleans())
    def change_a_limit(self, line: str, limit: int | None, whole: bool) -> None:
        policy = self.policies[line]
        self.policies[line] = replace(policy, whole=Bounds(limit)) if whole else replace(policy, each=Bounds(limit))
        self.run(self.declare())

    @rule(group=st.sampled_from(GROUPS), limit=st.sampled_from([1, 3, None]))
    def make_an_exception(self, group: str, limit: int | None) -> None:
        bounds = None if limit is None else Bounds(limit)
        self.run(self.store.limits.change_group("q", "each", group, bounds=bounds, weight=None))
        self.exceptions.pop(lane_name("each", group), None)
        if bounds is not None:
            self.exceptions[lane_name("each", group)] = bounds

    @rule(
        line=st.sampled_from(LINES),
        group=st.sampled_from(GROUPS),
        priority=st.integers(0, 9),
        count=st.integers(1, 4),
        is_due=st.sampled_from([True, True, True, False]),
    )
    def add(self, line: str, group: str, priority: int, count: int, is_due: bool) -> None:
        new = []
        for _ in range(count):
            order = self.next_order()
            lane = "" if line == "plain" else lane_name(line, group)
            when: dict[str, Any] = {"run_at": order} if is_due else {"delay": HOUR}
            job = new_job(queue="q", group=group, lane=lane, priority=priority, **when)
            new.append(job)
            self.jobs[job.id] = Shadow(job.id, line, group, priority, order, is_due=is_due)
        self.run(self.store.jobs.add(new))

    @rule(limit=st.integers(1, 8), slots=st.sampled_from([None, None, 0, 1, 2]), unblocks=st.booleans())
    def claim(self, limit: int, slots: int | None, unblocks: bool) -> None:
        if unblocks:
            # Those of no lane are claimed at once, and so are, in their order, those that have come back.
            for job in self.jobs.values():
                job.is_blocked = False
        self.run(self.claim_some(limit, limit if slots is None else slots, (UNBLOCKS,) if unblocks else ()))

    async def claim_some(self, limit: int, slots: int, unblocks: tuple[str, ...]) -> None:
        places = limit
        for _ in range(200):
            before = {lane: self.candidates(lane) for lane in {job.lane for job in self.jobs.values()}}
            rooms = {lane: self.room(jobs[0]) for lane, jobs in before.items() if jobs and lane}
            request = ClaimRequest(queues=(("q", places),), limit=places, slots=slots, unblocks=unblocks)
            answer = await self.store.jobs.report_and_claim(self.worker, [], request)
            assert len(answer.jobs) <= places
            self.check(answer.jobs, before, rooms, slots, was_blocked=bool(unblocks))
            places -= len(answer.jobs)
            slots -= sum(self.is_limited(self.jobs[job.id].line) for job in answer.jobs)
            if not places:
                return
            if answer.next_due_at is None or answer.next_due_at > answer.now + 10_000:
                break
            await SYSTEM.sleep(max(0, answer.next_due_at - answer.now) / 1e6)  # it says when to look again
        left = [lane for lane, jobs in ((lane, self.candidates(lane)) for lane in before) if jobs]
        open_lanes = [lane for lane in left if not lane or self.room(self.candidates(lane)[0]) > 0]
        lines = {lane: self.candidates(lane)[0].line for lane in open_lanes}
        assert [
            lane for lane in open_lanes if not (self.is_limited(lines[lane]) and slots <= 0) and lines[lane] != "rated"
        ] == []
        if slots <= 0 and any(line != "rated" for line in lines.values()):
            assert answer.has_limited

    def check(
        self,
        claimed: list[ClaimedJob],
        before: dict[str, list[Shadow]],
        rooms: dict[str, int],
        slots: int,
        *,
        was_blocked: bool,
    ) -> None:
        counts = Counter(self.jobs[job.id].lane for job in claimed)
        limited = 0
        for lane, count in counts.items():
            ids = {job.id for job in claimed if self.jobs[job.id].lane == lane}
            assert ids <= {job.id for job in before[lane]}
            if lane or not was_blocked:
                assert ids == {job.id for job in before[lane][:count]}, "the first of the lane"
            if lane:
                assert count <= rooms[lane]
                limited += count * self.is_limited(before[lane][0].line)
        assert limited <= max(slots, 0)
        rooms_of_lines = {
            line: policy.whole.concurrency - self.running(line=line or None)
            for line, policy in self.policies.items()
            if policy.whole.concurrency is not None
        }
        for line, room in rooms_of_lines.items():
            taken = sum(bool(self.jobs[job.id].lane) and line in ("", self.jobs[job.id].line) for job in claimed)
            assert taken <= max(room, 0)
        for job in claimed:
            shadow = self.jobs[job.id]
            shadow.state, shadow.instance = "running", self.worker
            self.claims[job.id] = job
            if shadow.line == "rated":
                starts = self.starts.setdefault(shadow.lane, [])
                starts.append(job.token)
                starts.sort()
        for starts in self.starts.values():
            assert all(later - earlier >= PER for earlier, later in zip(starts, starts[2:], strict=False)), "the rate"

    @rule(number=PICK, kind=st.sampled_from(KINDS))
    def end(self, number: int, kind: OutcomeKind) -> None:
        if not self.claims:
            return
        job = self.claims.pop(pick(self.claims, number))
        shadow = self.jobs[job.id]
        options: dict[str, Any] = {}
        if kind in (OutcomeKind.RETRY, OutcomeKind.SNOOZED):
            options["delay"] = HOUR
        if kind is OutcomeKind.BLOCKED:
            options["blocked_on"] = UNBLOCKS
        self.run(self.store.jobs.report_and_claim(self.worker, [outcome(job, kind, **options)], None))
        self.leave(shadow, kind)

    def leave(self, shadow: Shadow, kind: OutcomeKind) -> None:
        shadow.instance = None
        if kind is OutcomeKind.DEAD:
            shadow.state = "dead"
        elif kind in (OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED) or shadow.is_cancelled:
            shadow.state = "ended"
        else:
            shadow.state = "pending"
            shadow.is_due = shadow.is_due and kind not in (OutcomeKind.RETRY, OutcomeKind.SNOOZED)
            shadow.is_blocked = kind is OutcomeKind.BLOCKED

    @rule(number=PICK)
    def cancel(self, number: int) -> None:
        live = sorted(id for id, job in self.jobs.items() if job.state in ("pending", "running"))
        if not live:
            return
        shadow = self.jobs[pick(live, number)]
        self.run(self.store.jobs.cancel([shadow.id]))
        if shadow.state == "running":
            shadow.is_cancelled = True
        else:
            shadow.state = "ended"

    @rule(number=PICK)
    def run_now(self, number: int) -> None:
        future = sorted(id for id, job in self.jobs.items() if job.state == "pending" and not job.is_due)
        if not future:
            return
        shadow = self.jobs[pick(future, number)]
        assert self.run(self.store.jobs.run_now([shadow.id])) == 1
        shadow.is_due, shadow.order = True, 10**9 + self.next_order()

    @rule(number=PICK)
    def replay(self, number: int) -> None:
        dead = sorted(id for id, job in self.jobs.items() if job.state == "dead")
        if not dead:
            return
        shadow = self.jobs[pick(dead, number)]
        self.run(self.store.jobs.replay([shadow.id]))
        shadow.state, shadow.is_due, shadow.is_blocked, shadow.is_cancelled = "pending", True, False, False
        shadow.order = 10**9 + self.next_order()
        shadow.place = shadow.order % 10**9

    @rule()
    def die(self) -> None:
        self.run(self.store.instances.declare_dead(self.worker, beat=None, started=[], reason="model"))
        for id in self.claims:
            self.leave(self.jobs[id], OutcomeKind.RELEASED)
        self.claims.clear()
        self.worker = self.run(self.register())

    @invariant()
    def the_counts_are_those_of_the_jobs(self) -> None:
        for line in self.policies:
            for found in self.run(self.store.limits.list_groups("q", line)):
                lane = lane_name(line, found.group)
                waiting = sum(job.is_waiting and job.lane == lane for job in self.jobs.values())
                assert (found.waiting, found.running) == (waiting, self.running(lane=lane)), lane


def machine_on(engine: str) -> Any:
    """The machine's test on one engine."""
    machine = type(f"LimitedJobsOn{engine.title()}", (LimitedJobs,), {"engine": engine})
    machine.TestCase.settings = settings(  # type: ignore[attr-defined]
        max_examples=500 if os.environ.get("DRUMBEAT_FULL") else 20 if engine in NEWEST else 5,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return machine.TestCase  # type: ignore[attr-defined]


for name in ENGINES:
    globals()[f"Test{name.title()}"] = machine_on(name)
