"""`drumbeat run --burst`: real workers that leave when the store has nothing left to do."""

from pathlib import Path

import pytest

from drumbeat.core.job import JobState
from tests.cli.command import call
from tests.system.workers import ROOT, cluster_of

STEPS = 12


async def test_a_burst_works_until_no_job_is_due_and_leaves_what_is_due_later(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.apps.chains import fail_for_now, rest, step

    with cluster_of(tmp_path, "tests.apps.chains", monkeypatch, url=store_url) as (cluster, app):
        async with app:
            await step.enqueue(STEPS)
            failed = await fail_for_now.enqueue()
            later = await step.using(delay=3_600).enqueue(0)
            await app.queues.pause("resting", reason="nobody takes it now")
            paused = await rest.enqueue()
            worker = cluster.start("--burst")
            assert worker.wait(60) == 0, cluster.logs()
            assert (await app.jobs.counts()).succeeded == STEPS + 1
            assert [(await job.job()).state for job in (failed, later, paused)] == [JobState.PENDING] * 3
            assert (await failed.job()).failures == 1
            assert "nothing is left to do" in cluster.logs()


async def test_all_processes_of_a_burst_stay_until_the_last_job_and_a_dead_one_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.apps.chains import kill_once, step

    with cluster_of(tmp_path, "tests.apps.chains", monkeypatch) as (cluster, app):
        async with app:
            killed = await kill_once.enqueue(str(tmp_path / "marker"))
            last = await step.enqueue(STEPS)
            supervisor = cluster.start("--burst", "--processes", "2")
            assert supervisor.wait(60) == 0, cluster.logs()
            assert [(await job.job()).state for job in (killed, last)] == [JobState.SUCCEEDED] * 2
            assert (await app.jobs.counts()).succeeded == STEPS + 2
        assert cluster.logs().count("nothing is left to do") == 2


def test_a_controller_alone_has_no_burst() -> None:
    done = call("run", "tests.apps.chains:app", "--burst", "--role", "controller", folder=ROOT)
    assert done.returncode == 2
    assert done.stderr == "drumbeat: setting burst (flag --burst) needs a worker: a controller runs no jobs\n"
