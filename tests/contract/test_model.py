"""A job's life against a small pure model: random calls, and after each the store and the model must say the same.

Time is left out: jobs are due at once or not for an hour. What the model knows of a job is what `Shadow` holds.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from drumbeat.core.claim import ClaimedJob, ClaimRef, WriteStatus
from drumbeat.core.job import CancelAnswer, JobState, OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import InstanceId, JobId, new_instance_id
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from tests.conftest import ENGINES, open_fresh
from tests.contract.conftest import NEWEST
from tests.contract.making import HOUR, new_instance, new_job, outcome, release, wanting

QUEUES = ("a", "b")
KINDS = st.sampled_from(list(OutcomeKind))


class Shadow:
    """What the model knows of a job."""

    def __init__(self, id: JobId, queue: str, priority: int, unique: Unique, *, due: bool, crash_limit: int) -> None:
        self.id = id
        self.queue = queue
        self.priority = priority
        self.unique = unique
        self.due = due
        self.crash_limit = crash_limit
        self.state = JobState.PENDING
        self.instance: InstanceId | None = None
        self.token = 0
        self.failures = 0
        self.crashes = 0
        self.replays = 0
        self.waits = False
        self.cancel_requested = False
        self.discarded = False
        self.runs: list[tuple[int, InstanceId | None, OutcomeKind]] = []

    @property
    def live(self) -> bool:
        return self.state in {JobState.PENDING, JobState.RUNNING}

    def give_back(self) -> None:
        self.state, self.instance = JobState.PENDING, None


class JobsLife(RuleBasedStateMachine):
    """One key, two queues, a few instances."""

    engine = ""
    holds = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.jobs: dict[JobId, Shadow] = {}
        self.instances: dict[InstanceId, bool] = {}
        self.paused: set[str] = set()
        self.store: Store = self.run(open_fresh(self.engine, Path(self.folder.name)))

    def run(self, call: Any) -> Any:
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    # The model's rules.

    def holder(self, unique: Unique, but: JobId | None = None) -> JobId | None:
        states = {JobState.PENDING, JobState.RUNNING} if unique is Unique.LIVE else {JobState.PENDING}
        found = [job.id for job in self.jobs.values() if job.unique and job.state in states and job.id != but]
        return min(found, default=None) if unique else None

    def return_(self, job: Shadow) -> None:
        if job.unique is Unique.PENDING and self.holder(Unique.PENDING, job.id) is not None:
            job.unique = Unique.NO
        job.give_back()

    def cancelled(self, job: Shadow) -> None:
        job.state, job.waits = JobState.CANCELLED, False

    def status(self, instance: InstanceId, hold: ClaimRef, kind: OutcomeKind) -> WriteStatus:
        job = self.jobs[hold.id]
        if (job.state, job.instance, job.token) == (JobState.RUNNING, instance, hold.token):
            return WriteStatus.APPLIED
        recorded = [run for run in job.runs if run[:2] == (hold.token, instance)]
        back = kind not in {OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED, OutcomeKind.EXPIRED}
        same = any(run[2] is kind or (run[2] is OutcomeKind.CANCELLED and back) for run in recorded)
        return WriteStatus.DUPLICATE if same else WriteStatus.STALE

    def settle(self, job: Shadow, kind: OutcomeKind) -> None:
        recorded = kind
        if kind is OutcomeKind.SUCCEEDED:
            job.state = JobState.SUCCEEDED
        elif kind is OutcomeKind.DEAD or (kind is OutcomeKind.CRASHED and job.crashes + 1 >= job.crash_limit):
            job.state = JobState.DEAD
            job.failures += kind is OutcomeKind.DEAD
            job.crashes += kind is OutcomeKind.CRASHED
        elif kind is OutcomeKind.EXPIRED:
            job.state = JobState.EXPIRED
        elif kind is OutcomeKind.CANCELLED or job.cancel_requested:
            self.cancelled(job)
            recorded = OutcomeKind.CANCELLED
        else:
            job.failures += kind is OutcomeKind.RETRY
            job.crashes = 0 if kind is OutcomeKind.SUSPENDED else job.crashes + (kind is OutcomeKind.CRASHED)
            job.waits = kind is OutcomeKind.BLOCKED
            job.due = job.due and kind not in {OutcomeKind.RETRY, OutcomeKind.SNOOZED, OutcomeKind.SUSPENDED}
            instance = job.instance
            self.return_(job)
            job.runs.append((job.token, instance, recorded))
            return
        job.runs.append((job.token, job.instance, recorded))

    def claimable(self, instance: InstanceId, queue: str, limit: int) -> list[JobId]:
        if not self.instances.get(instance) or queue in self.paused:
            return []
        found = [
            job
            for job in self.jobs.values()
            if job.state is JobState.PENDING and job.due and not job.waits and job.queue == queue
        ]
        return [job.id for job in sorted(found, key=lambda job: job.priority)][:limit]

    # The calls.

    @initialize()
    def first_instance(self) -> None:
        self.register()

    @rule()
    def register(self) -> None:
        instance = new_instance(new_instance_id())
        self.run(self.store.instances.register(instance))
        self.instances[instance.id] = True

    @rule(
        queue=st.sampled_from(QUEUES),
        priority=st.integers(0, 9),
        unique=st.sampled_from(Unique),
        due=st.booleans(),
        crash_limit=st.integers(1, 3),
    )
    def add(self, queue: str, priority: int, unique: Unique, due: bool, crash_limit: int) -> None:
        job = new_job(
            queue=queue,
            priority=priority,
            key="k",
            unique=unique,
            delay=0 if due else HOUR,
            crash_limit=crash_limit,
        )
        holder = self.holder(unique)
        [answer] = self.run(self.store.jobs.add([job]))
        assert (answer.id, answer.created) == ((job.id, True) if holder is None else (answer.id, False))
        if holder is None:
            self.jobs[job.id] = Shadow(job.id, queue, priority, unique, due=due, crash_limit=crash_limit)
        else:
            assert self.jobs[answer.id].unique and self.jobs[answer.id].live

    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        if self.jobs:
            id = data.draw(st.sampled_from(list(self.jobs)))
            assert not self.run(self.store.jobs.add([new_job(id=id)]))[0].created

    @rule(target=holds, data=st.data(), queue=st.sampled_from(QUEUES), limit=st.integers(1, 5))
    def claim(self, data: st.DataObject, queue: str, limit: int) -> Any:
        instance = data.draw(st.sampled_from(list(self.instances)))
        answer = self.run(self.store.jobs.report_and_claim(instance, [], wanting(queue, limit=limit)))
        got: list[ClaimedJob] = answer.jobs
        expected = self.claimable(instance, queue, limit)
        assert sorted(self.jobs[job.id].priority for job in got) == [self.jobs[id].priority for id in expected]
        for claimed in got:
            job = self.jobs[claimed.id]
            assert job.state is JobState.PENDING and job.due and not job.waits and job.queue == queue
            assert claimed.token > job.token
            job.state, job.instance, job.token = JobState.RUNNING, instance, claimed.token
        return multiple(*((instance, ClaimRef(job.id, job.token)) for job in got))

    @rule(target=holds, data=st.data())
    def claim_waiting(self, data: st.DataObject) -> Any:
        instance = data.draw(st.sampled_from(list(self.instances)))
        answer = self.run(self.store.jobs.report_and_claim(instance, [], wanting("a", limit=3, wants=["task:x"])))
        for claimed in answer.jobs:
            job = self.jobs[claimed.id]
            assert job.state is JobState.PENDING and job.due and job.queue == "a" and "a" not in self.paused
            assert claimed.token > job.token
            job.state, job.instance, job.token, job.waits = JobState.RUNNING, instance, claimed.token, False
        return multiple(*((instance, ClaimRef(job.id, job.token)) for job in answer.jobs))

    @rule(held=holds, kind=KINDS, twice=st.booleans())
    def report(self, held: tuple[InstanceId, ClaimRef], kind: OutcomeKind, twice: bool) -> None:
        instance, hold = held
        told = outcome(hold, kind, delay=HOUR, blocked_on="task:x" if kind is OutcomeKind.BLOCKED else None)
        for _ in range(2 if twice else 1):
            expected = self.status(instance, hold, kind)
            [status] = self.run(self.store.jobs.report_and_claim(instance, [told], None)).statuses
            assert status is expected
            if status is WriteStatus.APPLIED:
                self.settle(self.jobs[hold.id], kind)

    @rule(held=consumes(holds))
    def release(self, held: tuple[InstanceId, ClaimRef]) -> None:
        instance, hold = held
        job = self.jobs[hold.id]
        current = (job.state, job.instance, job.token) == (JobState.RUNNING, instance, hold.token)
        assert self.run(release(self.store, instance, hold)) == current
        if current and job.cancel_requested:
            self.cancelled(job)
            job.runs.append((hold.token, instance, OutcomeKind.CANCELLED))
        elif current:
            self.return_(job)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.jobs:
            return
        job = self.jobs[data.draw(st.sampled_from(list(self.jobs)))]
        [answer] = self.run(self.store.jobs.cancel([job.id]))
        if job.state is JobState.PENDING:
            self.cancelled(job)
            job.instance = None
            job.cancel_requested = True
        elif job.state is JobState.RUNNING:
            assert answer is CancelAnswer.REQUESTED
            job.cancel_requested = True
            return
        assert answer == job.state.value

    @rule(data=st.data())
    def run_now(self, data: st.DataObject) -> None:
        if self.jobs:
            job = self.jobs[data.draw(st.sampled_from(list(self.jobs)))]
            pending = job.state is JobState.PENDING
            assert self.run(self.store.jobs.run_now([job.id])) == pending
            job.due = job.due or pending

    @rule(data=st.data(), discard=st.booleans())
    def decide(self, data: st.DataObject, discard: bool) -> None:
        """Replay or discard a dead letter."""
        if not self.jobs:
            return
        job = self.jobs[data.draw(st.sampled_from(list(self.jobs)))]
        letter = job.state is JobState.DEAD and not job.discarded
        if discard:
            assert self.run(self.store.jobs.discard([job.id])) == letter
            job.discarded = job.discarded or letter
            return
        holder = self.holder(job.unique)
        [answer] = self.run(self.store.jobs.replay([job.id]))
        assert answer.replayed == (letter and holder is None)
        assert (answer.conflict is not None) == (letter and holder is not None)
        if answer.replayed:
            job.give_back()
            job.replays, job.failures, job.crashes, job.due = job.replays + 1, 0, 0, True
            job.cancel_requested = False

    @rule(data=st.data(), knows=st.booleans())
    def declare_dead(self, data: st.DataObject, knows: bool) -> None:
        instance = data.draw(st.sampled_from(list(self.instances)))
        held = [job for job in self.jobs.values() if (job.state, job.instance) == (JobState.RUNNING, instance)]
        started = [job for job in held if not knows or data.draw(st.booleans())]
        marks = [ClaimRef(job.id, job.token) for job in started] if knows else None
        found = self.run(self.store.instances.declare_dead(instance, beat=None, started=marks, reason="killed"))
        assert found.declared == self.instances[instance]
        if not found.declared:
            return
        self.instances[instance] = False
        for job in held:
            unblamed = OutcomeKind.CANCELLED if job.cancel_requested else OutcomeKind.RELEASED
            job.runs.append((job.token, instance, OutcomeKind.CRASHED if job in started else unblamed))
            if job.cancel_requested:
                self.cancelled(job)
            elif job in started:
                own = job.crashes and len(started) == 1
                job.crashes = job.crashes + 1 if own else max(job.crashes, 1)
                if job.crashes >= job.crash_limit:
                    job.state = JobState.DEAD
                else:
                    self.return_(job)
            else:
                self.return_(job)

    @rule(queue=st.sampled_from(QUEUES), pause=st.booleans())
    def pause(self, queue: str, pause: bool) -> None:
        if pause:
            self.run(self.store.jobs.pause_queue(queue, by="model", reason=""))
            self.paused.add(queue)
        else:
            assert self.run(self.store.jobs.resume_queue(queue)) == (queue in self.paused)
            self.paused.discard(queue)

    # What must always be so.

    @invariant()
    def the_store_and_the_model_say_the_same(self) -> None:
        found = {job.id: job for job in self.run(find_jobs(self.store, JobFilter(limit=1_000)))}
        assert found.keys() == self.jobs.keys()
        for id, job in self.jobs.items():
            real = found[id]
            assert (real.state, real.token, real.failures, real.crashes, real.replays, real.unique) == (
                job.state,
                job.token,
                job.failures,
                job.crashes,
                job.replays,
                job.unique,
            )
            assert (real.blocked_on is not None) == job.waits
            assert real.cancel_requested == job.cancel_requested
            if job.live:
                assert real.instance == job.instance

    @invariant()
    def the_runs_on_record_are_the_models(self) -> None:
        for id, job in list(self.jobs.items())[-2:]:
            attempts = self.run(self.store.inspect.get_attempts([id]))[id]
            recorded = [(attempt.token, attempt.instance, attempt.outcome) for attempt in attempts]
            never_started = {run for run in job.runs if run[2] is OutcomeKind.CANCELLED}
            assert set(job.runs) - never_started <= set(recorded) <= set(job.runs)
            assert [attempt.token for attempt in attempts] == sorted(attempt.token for attempt in attempts)


def life_on(engine: str) -> Any:
    """The machine's test on one engine."""
    machine = type(f"JobsLifeOn{engine.title()}", (JobsLife,), {"engine": engine})
    machine.TestCase.settings = settings(  # type: ignore[attr-defined]
        max_examples=500 if os.environ.get("DRUMBEAT_FULL") else 20 if engine in NEWEST else 8,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return machine.TestCase  # type: ignore[attr-defined]


for name in ENGINES:
    globals()[f"Test{name.title()}"] = life_on(name)
