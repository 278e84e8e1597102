"""Processes that are killed, suspended and asked to stop, with real signals. Leases last a second here."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumbeat import errors
from drumbeat.app import Drumbeat
from drumbeat.core.job import JobState, OutcomeKind
from tests.apps import crashes
from tests.system.workers import Cluster, cluster_of
from tests.waiting import until

Pair = tuple[Cluster, Drumbeat]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    with cluster_of(tmp_path, "tests.apps.crashes", monkeypatch) as pair:
        yield pair


async def test_a_job_whose_worker_is_killed_runs_again_elsewhere_and_nothing_is_charged(pair: Pair) -> None:
    cluster, app = pair
    async with app:
        first = cluster.start()
        job = await crashes.hold.enqueue(str(cluster.gate()))
        cluster.wait_for("started")
        second = cluster.start()
        first.kill()
        started = cluster.wait_for("started", 2)
        cluster.gate().touch()
        await job.result(timeout=20)
        record = await app.jobs.show(job.id)
        outcomes = [attempt.outcome for attempt in await app.jobs.attempts(job.id)]
    assert (record.failures, record.crashes, outcomes) == (0, 1, [OutcomeKind.CRASHED, OutcomeKind.SUCCEEDED])
    assert started[1].facts["token"] > started[0].facts["token"]
    assert second.poll() is None


async def test_a_stopped_worker_that_wakes_has_its_late_result_refused_and_counted(pair: Pair) -> None:
    cluster, app = pair
    async with app:
        first = cluster.start()
        job = await crashes.hold_first.enqueue(str(cluster.gate()))
        cluster.wait_for("started")
        first.send_signal(signal.SIGSTOP)
        second = cluster.start()
        taken_over = await job.result(timeout=20)
        assert taken_over != first.pid
        cluster.gate().touch()
        first.send_signal(signal.SIGCONT)
        await until(lambda: _refused(app), what="the refusal", deadline=20)
        assert (await app.jobs.show(job.id)).result == str(taken_over)
        # It goes on under a new name.
        second.kill()
        after = await crashes.quick.enqueue(1)
        assert await after.result(timeout=20) == 1


async def _refused(app: Drumbeat) -> int:
    return sum(each.refused for each in await app.instances.list(all=True))


async def test_a_crash_between_handler_and_finish_is_one_more_run_and_on_record(pair: Pair) -> None:
    cluster, app = pair
    async with app:
        first = cluster.start()
        job = await crashes.dies_before_it_is_told.enqueue()
        first.wait(20)
        cluster.start()
        assert await job.result(timeout=20) == "told"
        record = await app.jobs.show(job.id)
    assert len(cluster.entries("started")) == 2
    assert (record.failures, record.crashes) == (0, 1)


async def test_a_job_that_kills_its_process_is_a_dead_letter_after_three_crashes_and_its_neighbours_finish(
    pair: Pair,
) -> None:
    cluster, app = pair
    async with app:
        bad = await crashes.poison.enqueue()
        good = await app.enqueue_many([crashes.quick.bind(n) for n in range(30)])
        first = cluster.start()
        first.wait(20)
        cluster.start()
        with pytest.raises(errors.JobFailed):
            await bad.result(timeout=30)
        assert [await job.result(timeout=20) for job in good] == list(range(30))
        letter = await app.dead.show(bad.id)
    assert (letter.crashes, letter.failures) == (3, 0)
    assert len([each for each in cluster.entries("started") if each.facts["id"] == bad.id]) == 3


async def test_sigterm_lets_running_jobs_end_and_claims_nothing_more(pair: Pair) -> None:
    cluster, app = pair
    async with app:
        jobs = await app.enqueue_many([crashes.hold.bind(str(cluster.gate())) for _ in range(4)])
        worker = cluster.start("--concurrency", "2")
        cluster.wait_for("started", 2)
        worker.terminate()
        late = await crashes.quick.enqueue(1)
        cluster.gate().touch()
        assert worker.wait(20) == 0
        states = Counter([(await app.jobs.show(job.id)).state for job in [*jobs, late]])
    assert states == {JobState.SUCCEEDED: 2, JobState.PENDING: 3}
    assert len(cluster.entries("started")) == 2


async def test_a_second_sigterm_releases_what_runs_and_leaves(pair: Pair) -> None:
    cluster, app = pair
    async with app:
        job = await crashes.hold.enqueue(str(cluster.gate()))
        worker = cluster.start("--drain", "forever")
        cluster.wait_for("started")
        worker.terminate()
        await until(lambda: "drain" in cluster.logs().lower(), what="a line about draining")
        assert worker.poll() is None
        worker.terminate()
        assert worker.wait(20) == 0
        record = await app.jobs.show(job.id)
    assert (record.state, record.failures, record.crashes) == (JobState.PENDING, 0, 0)


async def test_a_stuck_thread_ends_with_its_process_when_its_job_is_released(pair: Pair) -> None:
    cluster, app = pair
    async with app:
        job = await crashes.stuck.enqueue()
        worker = cluster.start("--drain", "0.3")
        cluster.wait_for("started")
        worker.terminate()
        worker.wait(10)
        record = await app.jobs.show(job.id)
    assert (record.state, record.failures, record.crashes) == (JobState.PENDING, 0, 0)
    assert cluster.entries("went on") == []


async def test_a_rolling_restart_under_load_loses_nothing_and_charges_nothing(pair: Pair) -> None:
    cluster, app = pair
    async with app:
        jobs = await app.enqueue_many([crashes.quick.bind(n) for n in range(8000)])
        workers = [cluster.start() for _ in range(2)]
        for _ in range(3):
            leaving = workers.pop(0)
            workers.append(cluster.start())
            await until(lambda pid=leaving.pid: len(_of(cluster, pid)) > 100, what="work in the one that leaves")
            leaving.terminate()
            assert leaving.wait(20) == 0
        assert [await job.result(timeout=60) for job in jobs] == list(range(8000))
        records = [await app.jobs.show(job.id) for job in jobs]
    assert {(record.failures, record.crashes) for record in records} == {(0, 0)}
    assert max(Counter(each.facts["id"] for each in cluster.entries("started")).values()) == 1


def _of(cluster: Cluster, pid: int) -> list[object]:
    return [entry for entry in cluster.entries("started") if entry.pid == pid]
