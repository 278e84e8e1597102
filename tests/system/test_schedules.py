"""Schedules on clusters of real processes that are killed, stopped and replaced: every fire time has one job, none is missing.

A few seconds on each engine; with DRUMBEAT_FULL=1 (`make chaos`) all of it on all engines, at its full length.
"""

import os
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from drumbeat.core.instance import LeaderInfo
from drumbeat.core.job import Job, JobState
from drumbeat.core.job_query import JobFilter
from drumbeat.durations import to_us
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from tests.contract.making import worker
from tests.system.workers import Cluster
from tests.waiting import Stalls, until

FULL = bool(os.environ.get("DRUMBEAT_FULL"))
EVERY = 1.0 if FULL else 0.5
EVERY_ENGINE = ["sqlite", "postgres", "valkey"]

Process = subprocess.Popen[bytes]


class Clockwork(Cluster):
    """Processes that fire and run the schedules of tests/apps/clockwork.py, and what came of it."""

    def __init__(self, folder: Path, store: Store, url: str) -> None:
        super().__init__(folder, "tests.apps.clockwork")
        self.url = url
        self._store = store

    async def jobs(self) -> list[Job]:
        jobs = await find_jobs(self._store, JobFilter(limit=100_000))
        return [job for job in jobs if job.schedule is not None]

    async def fired(self, moments: int, deadline: float = 30.0) -> None:
        """Wait until this many more fire times of the first schedule have passed and were fired."""
        schedule = await until(lambda: self._store.schedules.get("s00"), deadline=deadline, what="a declaration")
        seen, rule = schedule.cursor or schedule.next_at - 1, int(schedule.definition.rule)

        async def more() -> bool:
            found = await self._store.schedules.get("s00")
            return found is not None and (found.cursor or 0) >= seen + moments * rule

        await until(more, deadline=deadline, what=f"{moments} more moments\n{self.logs()}")

    async def leader(self, among: list[Process]) -> Process:
        """The process that leads now."""

        async def look() -> Process | None:
            # By the answer to the beat of an instance that does nothing else.
            me = await worker(self._store, app="observer")
            pulse = await self._store.instances.heartbeat(me, 0)
            await self._store.instances.deregister(me, "left")
            pids = {each.id: each.pid for each in await self._store.inspect.list_instances()}
            pid = None if pulse.leader is None else pids.get(pulse.leader.instance)
            return next((process for process in among if process.pid == pid), None)

        found: Process = await until(look, deadline=30, what="a leader")
        return found

    async def next_leader(self, after: LeaderInfo, deadline: float = 30.0) -> LeaderInfo:
        """Whoever leads after this one."""

        async def look() -> LeaderInfo | None:
            found = await self._store.inspect.get_leader()
            return found if found is not None and found.term > after.term else None

        found: LeaderInfo = await until(look, deadline=deadline, what=f"another leader\n{self.logs()}")
        return found

    async def are_up(self, count: int) -> None:
        """Wait until so many instances live: on a busy machine a start takes its time."""

        async def enough() -> bool:
            return len(await self._store.inspect.list_instances()) >= count

        await until(enough, deadline=60, what=f"{count} instances")

    async def stop_leader(self, among: list[Process]) -> Process:
        """Stop the process that leads (SIGSTOP), and see that the others go on."""
        while True:
            leader = await self.leader(among)
            leader.send_signal(signal.SIGSTOP)
            try:
                await self.fired(1, deadline=4)
            except AssertionError:
                # It was stopped while it wrote: with SQLite, nobody can write then.
                leader.send_signal(signal.SIGCONT)
            else:
                return leader

    async def finish(self, processes: list[Process]) -> list[Job]:
        """Let all jobs end that are there, and the processes leave."""

        async def idle() -> bool:
            return not any(
                queue.ready + queue.running + queue.waiting for queue in await self._store.inspect.list_queues()
            )

        try:
            await until(idle, deadline=30, what="the end of all jobs")
        except AssertionError as error:
            left = [
                (job.schedule, job.due_at, job.state, job.instance) for job in await self.jobs() if not job.finished_at
            ]
            raise AssertionError(f"{error}: {left[:20]}\n{self.logs()}") from None
        for process in processes:
            process.terminate()
        for process in processes:
            # The youngest may not have come to its handlers of signals yet.
            assert process.wait(30) in (0, -signal.SIGTERM)
        return await self.jobs()


@pytest.fixture
def clockwork(tmp_path: Path, store: Store, store_url: str) -> Iterator[Clockwork]:
    clockwork = Clockwork(tmp_path, store, store_url)
    yield clockwork
    clockwork.end()


def check_each_moment_once(jobs: list[Job], *, schedules: int, every: float) -> None:
    counted = Counter((job.schedule, job.due_at) for job in jobs)
    assert {fire: count for fire, count in counted.items() if count != 1} == {}
    moments: dict[str, list[datetime]] = defaultdict(list)
    for schedule, due_at in sorted(counted):
        moments[schedule].append(due_at)  # type: ignore[index]
    assert len(moments) == schedules
    missing = {
        schedule: (before, after)
        for schedule, due in moments.items()
        for before, after in pairwise(due)
        if after - before != timedelta(seconds=every)
    }
    assert missing == {}


def lateness(jobs: list[Job]) -> float:
    """The longest time in seconds between a fire time and the enqueue of its job."""
    return max((job.created_at - job.due_at).total_seconds() for job in jobs)


@pytest.mark.parametrize("engine", EVERY_ENGINE)
async def test_each_fire_time_has_one_job_though_instances_are_killed_and_stopped(clockwork: Clockwork) -> None:
    environ = {"TEST_SCHEDULES": "20", "TEST_EVERY": str(EVERY), "DRUMBEAT_LEADER_LEASE": "10" if FULL else "1"}
    rounds, apart = (20, 3) if FULL else (2, 2)
    processes = [clockwork.start(**environ) for _ in range(5)]
    await clockwork.fired(2)
    stopped = await clockwork.stop_leader(processes)
    for number in range(rounds):
        await clockwork.fired(apart)
        others = [process for process in processes if process is not stopped]
        await clockwork.are_up(4)
        victim = await clockwork.leader(others) if number % 2 else others[0]
        victim.kill()
        victim.wait(10)
        processes.remove(victim)
        processes.append(clockwork.start(**environ))
        if number == (5 if FULL else 1):  # for longer than its lease
            stopped.send_signal(signal.SIGCONT)
            stopped = victim
    await clockwork.fired(2)
    jobs = await clockwork.finish(processes)
    check_each_moment_once(jobs, schedules=20, every=EVERY)
    assert len(jobs) >= 20 * (rounds * apart + 3)  # the first moment may have come before all were declared
    assert {job.state for job in jobs if job.finished_at is not None} == {JobState.SUCCEEDED}


@pytest.mark.parametrize("engine", EVERY_ENGINE if FULL else ["postgres"])
async def test_a_rolling_restart_of_all_instances_misses_nothing_and_delays_nothing(clockwork: Clockwork) -> None:
    environ = {"TEST_SCHEDULES": "50", "TEST_EVERY": str(EVERY)}
    processes = [clockwork.start(**environ) for _ in range(3)]
    await clockwork.are_up(3)
    await clockwork.fired(1)
    began = max(job.due_at for job in await clockwork.jobs())
    with Stalls() as stalls:
        for _ in range(3 if FULL else 1):
            for old in list(processes):
                processes.append(clockwork.start(**environ))
                await clockwork.are_up(4)
                await clockwork.fired(1)
                old.terminate()
                assert old.wait(30) == 0
                processes.remove(old)
        jobs = await clockwork.finish(processes)
    check_each_moment_once(jobs, schedules=50, every=EVERY)
    assert lateness([job for job in jobs if job.due_at > began]) < 1 + stalls.seconds
    assert {(job.failures, job.crashes) for job in jobs} == {(0, 0)}


DEFAULTS = {"TEST_EVERY": "0.1", "DRUMBEAT_HEARTBEAT": "1", "DRUMBEAT_DEAD_AFTER": "10"}


@pytest.mark.parametrize("engine", EVERY_ENGINE if FULL else ["sqlite"])
async def test_a_leader_that_is_asked_to_stop_delays_nothing(clockwork: Clockwork) -> None:
    processes = [clockwork.start(**DEFAULTS) for _ in range(2)]
    first = await clockwork.leader(processes)
    await clockwork.fired(10)
    before = len(await clockwork.jobs())
    with Stalls() as stalls:
        first.terminate()
        await clockwork.fired(30)
    jobs = sorted(await clockwork.jobs(), key=lambda job: job.due_at)
    check_each_moment_once(jobs, schedules=1, every=0.1)
    assert lateness(jobs[before - 5 :]) < 1 + stalls.seconds
    assert first.wait(10) == 0


@pytest.mark.parametrize("engine", EVERY_ENGINE)
@pytest.mark.parametrize(
    ("flags", "dead_after", "seconds"), [(["--processes", "3"], 10, 2.5), ([], 5, 5)], ids=["supervised", "alone"]
)
async def test_a_leader_that_is_killed_costs_little_time_and_is_replaced(
    clockwork: Clockwork, store: Store, flags: list[str], dead_after: float, seconds: float
) -> None:
    """Another leads within 2.5 s if a supervisor saw the death, else within dead_after; no fire is later than 2.5 s."""
    environ = DEFAULTS | {"DRUMBEAT_DEAD_AFTER": f"{dead_after}"}
    processes = [clockwork.start(*flags, **environ) for _ in range(1 if flags else 3)]
    await clockwork.are_up(3)
    await clockwork.fired(10)
    before = max(job.due_at for job in await clockwork.jobs())
    for _ in range(5 if FULL else 2 if flags else 1):
        leader = await until(store.inspect.get_leader, what="a leader")
        pids = {each.id: each.pid for each in await store.inspect.list_instances()}
        with Stalls() as stalls:
            died_at = await store.inspect.now()
            os.kill(pids[leader.instance], signal.SIGKILL)
            found = await clockwork.next_leader(leader)
            assert (to_us(found.since) - died_at) / 1e6 < seconds + stalls.seconds, clockwork.logs()
            await clockwork.fired(1)
            late = sorted(
                (job.created_at - job.due_at).total_seconds() for job in await clockwork.jobs() if job.due_at > before
            )
            assert late[-1] < 2.5 + stalls.seconds
            # Only the first moments wait for somebody to notice.
            assert late[len(late) // 2] < 0.5 + stalls.seconds
        if not flags:
            processes.append(clockwork.start(**environ))
        await clockwork.are_up(3)
    jobs = await clockwork.jobs()
    check_each_moment_once(jobs, schedules=1, every=0.1)
    for process in processes:
        process.terminate()


@pytest.fixture
def series(tmp_path: Path, store_url: str) -> Iterator[Cluster]:
    series = Cluster(tmp_path, "tests.apps.series")
    series.url = store_url
    yield series
    series.end()


@pytest.mark.parametrize("engine", EVERY_ENGINE if FULL else ["sqlite"])
async def test_a_crash_of_its_runner_does_not_stop_an_interval(series: Cluster) -> None:
    first = series.start(TEST_KILLS=str(series.gate()))
    assert first.wait(60) == -signal.SIGKILL
    series.start(TEST_KILLS=str(series.gate()))
    series.wait_for("step", 5, deadline=60)
    ids = [entry.facts["id"] for entry in series.entries("step")]
    assert ids[0] == ids[1], "the run that crashed is run again"
    assert len(set(ids)) == len(ids) - 1


@pytest.mark.parametrize("engine", EVERY_ENGINE if FULL else ["sqlite"])
async def test_restarts_more_frequent_than_an_interval_do_not_starve_it(series: Cluster, store: Store) -> None:
    restarts = 0

    async def beaten() -> bool:
        return any(instance.beat >= 5 for instance in await store.inspect.list_instances())

    while len(series.entries("step")) < 3:
        process = series.start(TEST_EVERY="2")
        restarts += 1
        series.wait_for("begun", restarts, deadline=60)
        await until(beaten, what="half a second of life")
        process.terminate()
        process.wait(20)
        assert restarts < 60
    assert len({entry.pid for entry in series.entries("step")}) == 3, "each life was too short for two"
    moments = [entry.facts["at"] for entry in series.entries("step")]
    assert all(later - sooner >= 2 for sooner, later in pairwise(moments))
