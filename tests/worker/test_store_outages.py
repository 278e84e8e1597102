"""A store that is away or full is waited out by every part of an instance, whichever of its calls fails.

One worker with all that it can have (schedules, a room, locks, progress, retries, a start-up call) lives through failures of
every operation that it calls; then everything that was asked for is done, and the store has it.
"""

import asyncio

import pytest

from drumbeat import Backoff, Limit
from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.controller import (
    lane_sweeper,
    limit_declarations,
    pruner,
    release_sweeper,
    schedule_declarations,
    schedule_rescuer,
)
from drumbeat.core.instance import InstanceState
from drumbeat.errors import StoreError, StoreFull, StoreUnavailable
from drumbeat.events import StoreDown, StoreHasSpace, StoreOutOfSpace, StoreUp
from drumbeat.ids import new_instance_id
from drumbeat.service import OutageBackoff
from drumbeat.worker import room_consumer, stats_recorder, store_loop
from tests.contract.making import new_instance
from tests.faults import FaultyProgram, FaultyStore
from tests.waiting import until
from tests.worker.worker_harness import EventRecorder, run_worker

FAILURES = 3
HEART = {
    *("instances.register", "instances.heartbeat", "instances.declare_dead", "locks.ticket_status"),
    *("schedules.get", "schedules.put", "schedules.declare", "schedules.get_due", "schedules.fire"),
    *("schedules.advance_stalled", "schedules.retire_undeclared", "inspect.now"),
}
"""Calls on the heartbeat's loop."""
LOOP = {
    "dependencies.advance",
    *(
        "jobs.report_and_claim",
        "jobs.save_progress",
        "jobs.list_running",
        "jobs.prune",
        "jobs.expire",
        "jobs.expire_blocked",
    ),
    *(
        "schedules.claim_once",
        "schedules.complete_once",
        "schedules.prune_fires",
        "audit.prune",
        "stats.prune",
        "stats.put",
    ),
    *("instances.prune", "inspect.now", "inspect.list_instances", "rooms.take", "rooms.prune"),
    *("limits.declare", "limits.list_lines", "limits.sweep"),
}
"""Calls on the worker's loop."""
AT_TIMES = {
    *("locks.release", "instances.deregister", "instances.leave_rooms", "inspect.get_jobs"),
    *("stats.read_written", "stats.read_run_ends"),  # the counts of a dead instance, which are given up
}
"""Called when an answer was lost, a handler was cancelled, a worker leaves: tests of their own show what becomes of that."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done from time to time is done all the time."""
    for module in (schedule_declarations, pruner, schedule_rescuer, release_sweeper, lane_sweeper, limit_declarations):
        monkeypatch.setattr(module, "RUN_INTERVAL", 0.05)
    monkeypatch.setattr(schedule_rescuer, "IDLE_INTERVAL", 0.0)
    monkeypatch.setattr(lane_sweeper, "IDLE_INTERVAL", 0.05)
    monkeypatch.setattr(schedule_declarations, "RETIRE_DELAY", 0.5)
    monkeypatch.setattr(room_consumer, "POLL_INTERVAL", 0.05)
    monkeypatch.setattr(store_loop, "TICK_INTERVAL", 0.05)
    monkeypatch.setattr(store_loop, "RECONCILE_INTERVAL", 0.1)
    monkeypatch.setattr(stats_recorder, "INTERVAL_US", 200_000)
    monkeypatch.setattr(stats_recorder, "MAX_SPREAD_SECONDS", 0.1)
    monkeypatch.setattr(OutageBackoff, "MAX_DELAY", 0.1)


@pytest.mark.parametrize("kind", [StoreUnavailable, StoreFull])
async def test_every_call_of_a_worker_may_fail_for_a_while(
    app: Drumbeat, recorder: EventRecorder, kind: type[StoreError]
) -> None:
    ticks: list[int] = []
    met: list[int] = []
    began: list[str] = []
    go_on = asyncio.Event()

    @app.every(0.1)
    async def tick() -> None:
        ticks.append(1)

    @app.task(retries=3, backoff=Backoff(base=0.01))
    async def work(number: int) -> int:
        current_job().progress(number)
        async with app.lock(f"lock-{number % 2}"):
            await app._internals.clock.sleep(0.05)
        if current_job().attempt == 1 and number % 5 == 0:
            raise ValueError("once")
        return number

    @app.task(limits=[Limit(concurrency=1)])
    async def hold() -> str:
        current_job().progress("holding")
        async with app.lock("held"):
            await go_on.wait()
        return "held all the time"

    @app.room
    async def meet(numbers: list[int]) -> None:
        met.extend(numbers)

    @app.on_start(once=True)
    async def prepare() -> None:
        began.append("prepared")

    program = FaultyProgram(app)
    program.first = (FAILURES, kind("on purpose"))
    async with app:
        store = await app._internals.store()
        dead = new_instance(new_instance_id())
        await store.instances.register(dead)
        holder = await hold.enqueue()
        jobs = await app.enqueue_many([work.bind(number) for number in range(20)])
        async with run_worker(program, lock_renew=0.1, lock_lease=3, max_failed_beats=1_000) as worker:
            heart = await until(lambda: program.heart)
            await all_answered(heart, HEART)
            loop = await until(lambda: program.faults)
            await all_answered(loop, LOOP)
            go_on.set()
            assert await holder.result(timeout=10) == "held all the time"
            assert [await job.result(timeout=10) for job in jobs] == list(range(20))
            seen = len(ticks)
            await until(lambda: len(ticks) > seen + 2, what="fires after the trouble")
            await until(lambda: meet.fan_out([1]), what="somebody in the room")
            await until(lambda: met, what="a message")
            buried = next(each for each in await app.instances.list(all=True) if each.id == dead.id)
            assert buried.state is InstanceState.DEAD
            assert began == ["prepared"]
            assert not worker.shutdown.is_stopping
        assert worker.shutdown.exit_code == 0
    assert set(heart.calls) <= HEART | AT_TIMES and set(loop.calls) <= LOOP | AT_TIMES
    began_as, ended_as = (StoreOutOfSpace, StoreHasSpace) if kind is StoreFull else (StoreDown, StoreUp)
    assert len(recorder.of(began_as)) == len(recorder.of(ended_as)) >= 1


async def all_answered(store: FaultyStore, calls: set[str]) -> None:
    """Until each of these calls has been answered, after its failures."""
    try:
        await until(lambda: all(store.calls[call] > FAILURES for call in calls), deadline=15)
    except AssertionError:
        pytest.fail(f"not called again: {sorted(call for call in calls if store.calls[call] <= FAILURES)}")
