"""Rude handlers: whatever code of a job raises, returns or does to its process, the jobs beside it all finish.

Real worker processes, started as users do. All kinds of a pool are played to one worker at once, with good jobs among them;
then each kind is looked at by a test of its own. The kinds are in tests/apps/rude.py.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from drumbeat import errors
from drumbeat.core.job import Job, JobState
from drumbeat.handle import JobHandle
from tests.apps import journal, rude
from tests.conftest import SERVERS, fresh_url
from tests.system.workers import QUICK, ROOT
from tests.waiting import until, until_sync

Kinds = Sequence[tuple[Any, str]]
"""Tasks, and the kind that each is called with."""


class Played(NamedTuple):
    jobs: dict[str, Job]
    """The rude ones, by their kind."""
    good: list[Job]
    workers: set[int]
    """Processes that the good ones ran in."""
    pid: int
    exit_code: int
    took: float
    """Seconds from SIGTERM to the end of the worker."""
    log: str


class Stage:
    """A worker, or several under a supervisor, and the rude program as a client of the same store."""

    def __init__(self, folder: Path, engine: str = "sqlite", crash_limit: int = 3) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.engine = engine
        self._crash_limit = crash_limit
        self.url = fresh_url(engine, folder)
        self.log = folder / "worker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def __enter__(self) -> "Stage":
        self._before = {name: os.environ.get(name) for name in ("DRUMBEAT_URL", journal.FILE)}
        os.environ |= {"DRUMBEAT_URL": self.url, journal.FILE: str(self.folder / "journal")}
        rude.app.configure({"url": self.url, "crash_limit": self._crash_limit})
        return self

    def start(self, *flags: str, **environ: str) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "drumbeat", "run", "tests.apps.rude:app", *flags],
                cwd=ROOT,
                env=os.environ | QUICK | {"DRUMBEAT_LOG_LEVEL": "info"} | environ,
                stdout=log,
                stderr=log,
            )
        return self._process

    def stop(self) -> tuple[int, float]:
        """The exit code after SIGTERM, and how long that took."""
        loop_time = asyncio.new_event_loop()
        began = loop_time.time()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        took = loop_time.time() - began
        loop_time.close()
        return code, took

    def __exit__(self, *error: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if self.engine in SERVERS:
            SERVERS[self.engine].give_back(self.url)


def play(
    folder: Path, kinds: Kinds, *flags: str, engine: str = "sqlite", crash_limit: int = 3, **environ: str
) -> Played:
    """Run these beside good jobs until all have ended, and stop the worker."""
    with Stage(folder, engine, crash_limit) as stage:
        process = stage.start("--concurrency", "4", "--drain", "1", *flags, **environ)
        rude_jobs, good = asyncio.run(_run(stage, kinds))
        alive = process.poll() is None
        assert alive, f"the worker is gone:\n{stage.log.read_text()[-4000:]}"
        code, took = stage.stop()
        return Played(rude_jobs, good, _pids(good), process.pid, code, took, stage.log.read_text())


async def _run(stage: Stage, kinds: Kinds) -> tuple[dict[str, Job], list[Job]]:
    async with rude.app as app:
        handles: dict[str, JobHandle[Any]] = {}
        goods: list[JobHandle[Any]] = []
        for number, (task, kind) in enumerate(kinds):
            handles[kind] = await task.enqueue(kind)
            goods.append(await rude.good.enqueue(number))
            goods.append(await rude.good_in_thread.enqueue(number))
        goods.append(await rude.good_in_process.enqueue(-1))

        awaited = [*handles.values(), *goods]

        async def ended() -> bool:
            # None is looked at again that has ended: the worker needs the machine.
            while awaited and (await app.jobs.show(awaited[-1].id)).state not in (JobState.PENDING, JobState.RUNNING):
                awaited.pop()
            return not awaited

        try:
            await until(ended, deadline=90, what="the end of all jobs")
        except AssertionError as error:
            left = [kind for kind, each in handles.items() if (await app.jobs.show(each.id)).finished_at is None]
            raise AssertionError(f"not ended: {left}; {stage.log.read_text()[-6000:]}") from error
        # Whatever was left behind has had its time: the worker still takes jobs, in every slot.
        last = [await rude.good.enqueue(number) for number in range(12)]
        for handle in last:
            try:
                await handle.result(timeout=20)
            except errors.DrumbeatError as error:
                raise AssertionError(f"the last jobs do not run:\n{stage.log.read_text()[-6000:]}") from error
        jobs = {kind: await app.jobs.show(handle.id) for kind, handle in handles.items()}
        return jobs, [await app.jobs.show(handle.id) for handle in (*goods, *last)]


def _pids(jobs: list[Job]) -> set[int]:
    return {int(job.result) for job in jobs if job.result is not None}


def check_good(played: Played) -> None:
    """All good jobs have succeeded, and the worker has lived through it and drained."""
    assert [job.state for job in played.good if job.state is not JobState.SUCCEEDED] == []
    assert played.workers == {played.pid}, played.log[-4000:]
    assert played.exit_code == 0, played.log[-4000:]
    assert played.took < 15


def check_failed(job: Job) -> None:
    """One charged attempt, with something to read."""
    assert (job.state, job.failures, job.crashes) == (JobState.DEAD, 1, 0), job.error
    assert job.error is not None and job.error.type and job.error.traceback is not None


# On the loop, in threads, in processes: each kind that a plain call can have.

POOLS = {"loop": rude.rude_on_loop, "thread": rude.rude_in_thread, "process": rude.rude_in_process}
PLAIN = [*rude.RAISES, *rude.RETURNS, *rude.DISTURBS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rude")


@pytest.fixture(scope="module", params=list(POOLS))
def plain(request: pytest.FixtureRequest, folder: Path) -> Played:
    task = POOLS[request.param]
    return play(folder / request.param, [(task, kind) for kind in PLAIN])


def test_good_jobs_beside_plain_rude_ones_all_finish(plain: Played) -> None:
    check_good(plain)


@pytest.mark.parametrize("kind", rude.RAISES)
def test_what_is_raised_is_a_failed_attempt(plain: Played, kind: str) -> None:
    check_failed(plain.jobs[kind])


@pytest.mark.parametrize("kind", rude.RETURNS)
def test_what_cannot_be_stored_is_no_result(plain: Played, kind: str) -> None:
    job = plain.jobs[kind]
    assert job.state in (JobState.SUCCEEDED, JobState.DEAD)
    assert job.result is None and job.crashes == 0


@pytest.mark.parametrize("kind", rude.DISTURBS)
def test_what_disturbs_its_process_ends_well(plain: Played, kind: str) -> None:
    assert plain.jobs[kind].state is JobState.SUCCEEDED, plain.jobs[kind].error


# On the loop itself, on both kinds of loop, and from threads beside it.


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def on_loop(request: pytest.FixtureRequest, folder: Path) -> Played:
    kinds = [(rude.rude_loop, kind) for kind in rude.ON_LOOP]
    kinds += [(rude.rude_in_thread, kind) for kind in rude.IN_THREAD]
    (folder / "without").mkdir(exist_ok=True)
    (folder / "without" / "uvloop.py").write_text("raise ImportError('not here')\n")
    # How long a worker takes leave of what does not end is seen on the first alone.
    environ: dict[str, Any] = {"PYTHONPATH": str(folder / "without"), rude.HASTE: "yes"}
    if request.param == "uvloop":
        environ = {}
    return play(folder / request.param, kinds, **environ)


def test_good_jobs_beside_those_that_attack_the_loop_all_finish(on_loop: Played) -> None:
    check_good(on_loop)


@pytest.mark.parametrize("kind", [*rude.ON_LOOP, *rude.IN_THREAD])
def test_what_is_done_to_the_loop_ends_no_other_job(on_loop: Played, kind: str) -> None:
    wanted = (rude.ON_LOOP | rude.IN_THREAD)[kind][1]
    job = on_loop.jobs[kind]
    assert wanted in (job.state.value, "any"), job.error
    assert job.crashes == 0


# Handlers that end their process.


@pytest.fixture(scope="module")
def killed_children(folder: Path) -> Played:
    return play(folder / "kills", [(rude.rude_in_process, kind) for kind in rude.KILLS])


@pytest.mark.parametrize("kind", rude.KILLS)
def test_a_job_that_kills_its_child_process_is_dead_after_three_crashes(killed_children: Played, kind: str) -> None:
    job = killed_children.jobs[kind]
    assert (job.state, job.failures, job.crashes) == (JobState.DEAD, 0, 3), job.error
    check_good(killed_children)


@pytest.fixture(scope="module", params=["loop", "thread"])
def killed_workers(request: pytest.FixtureRequest, folder: Path) -> Played:
    """Two crashes each: a new worker takes its time. The usual three are those of children, above, and of tests/system."""
    kinds = [(POOLS[request.param], kind) for kind in rude.KILLS]
    return play(folder / f"kills {request.param}", kinds, "--processes", "2", crash_limit=2)


@pytest.mark.parametrize("kind", rude.KILLS)
def test_a_job_that_kills_its_worker_is_dead_and_its_neighbours_finish(killed_workers: Played, kind: str) -> None:
    job = killed_workers.jobs[kind]
    assert (job.state, job.failures, job.crashes) == (JobState.DEAD, 0, 2), job.error
    assert [job.state for job in killed_workers.good if job.state is not JobState.SUCCEEDED] == []
    assert killed_workers.exit_code == 0


# A slice on every engine.

SLICE = ("keyboard interrupt", "panic", "cancelled error", "raising __notes__", "lone surrogate", "ten megabytes")
LOOP_SLICE = (
    "cancels itself",
    "absorbs a cancellation",
    "cancels every task",
    "exits in the background",
    "stops the loop",
)


def test_rude_jobs_on_every_engine(tmp_path: Path, engine: str) -> None:
    kinds = [(task, kind) for task, kind in zip([*POOLS.values()] * 2, SLICE, strict=True)]
    kinds += [(rude.rude_loop, kind) for kind in LOOP_SLICE]
    played = play(tmp_path / "stage", kinds, engine=engine)
    check_good(played)
    for kind in SLICE[:-1]:
        check_failed(played.jobs[kind])
    for kind in LOOP_SLICE:
        assert played.jobs[kind].state.value == rude.ON_LOOP[kind][1]


def test_what_disturbs_its_process_harms_no_engine(tmp_path: Path, engine: str) -> None:
    """A driver may warn where another does not, and a warning may be an error."""
    check_good(play(tmp_path / "stage", [(rude.rude_in_thread, kind) for kind in rude.DISTURBS], engine=engine))


# Batches, follow-ups, rooms, subscribers.


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path / "stage") as stage:
        yield stage


CALLED = [kind for kind in rude.RAISES if kind not in ("retry later in a group",)]


async def test_batches_fail_and_the_worker_goes_on(stage: Stage) -> None:
    process = stage.start("--drain", "1")
    async with rude.app as app:
        jobs = await app.enqueue_many([rude.rude_batch.bind(kind) for kind in CALLED])
        for job in jobs:
            with pytest.raises(errors.JobFailed):
                await job.result(timeout=30)
        assert await (await rude.good.enqueue(1)).result(timeout=20) == process.pid
    assert stage.stop()[0] == 0


async def test_follow_ups_of_dead_jobs_fail_and_the_worker_goes_on(stage: Stage) -> None:
    process = stage.start("--drain", "1", DRUMBEAT_RETRIES="1")
    async with rude.app as app:
        for kind in CALLED:
            await rude.fails.using(key=kind).enqueue()
        follow_ups = "fails.on_dead"

        async def dead() -> bool:
            return len(await app.dead.list(task=follow_ups, limit=500)) == len(CALLED)

        try:
            await until(dead, deadline=60)
        except AssertionError as error:
            raise AssertionError(stage.log.read_text()[-4000:]) from error
        assert await (await rude.good.enqueue(1)).result(timeout=20) == process.pid
    assert stage.stop()[0] == 0


# Each is called twice here, and a descriptor that is closed for the second time may be somebody else's by then.
GUESTS = [kind for kind in PLAIN if kind != "closed descriptors"]
LOOP_GUESTS = [kind for kind, (_, wanted) in rude.ON_LOOP.items() if kind != "swallows its time-out" and wanted]


async def test_rooms_survive_their_handlers(stage: Stage) -> None:
    process = stage.start("--drain", "1", **{rude.HASTE: "yes"})
    async with rude.app as app:
        await until(lambda: app.instances.list(), deadline=20)
        for kind in GUESTS:
            await rude.rude_room.broadcast(kind)
            await rude.rude_room_in_thread.broadcast(kind)
        for kind in LOOP_GUESTS:
            await rude.rude_room_on_loop.broadcast(kind)
            await rude.good_room.broadcast()
        wanted = len(LOOP_GUESTS)
        await until(lambda: len(journal.read(stage.folder / "journal", "good room")) == wanted, deadline=20)
        for number in range(12):
            assert await (await rude.good.enqueue(number)).result(timeout=20) == process.pid
    assert stage.stop()[0] == 0


async def test_subscribers_do_no_harm(stage: Stage) -> None:
    process = stage.start("--drain", "1", **{rude.HASTE: "yes"})
    async with rude.app:
        jobs = [await rude.told_of.using(key=kind).enqueue(kind) for kind in [*GUESTS, *LOOP_GUESTS]]
        for job in jobs:
            await job.result(timeout=30)
        for number in range(12):
            assert await (await rude.good.enqueue(number)).result(timeout=20) == process.pid
    assert stage.stop()[0] == 0


# What runs before the first job may end the worker, with a reason.

AT_START = ("panic", "keyboard interrupt", "system exit", "cancelled error", "raising __str__")


@pytest.mark.parametrize("kind", AT_START)
@pytest.mark.parametrize("variable", ["RUDE_LIFESPAN", "RUDE_START"])
def test_what_fails_at_the_start_ends_the_worker_with_one_line(stage: Stage, variable: str, kind: str) -> None:
    process = stage.start(**{variable: kind})
    assert process.wait(30) == 1, stage.log.read_text()
    told = [line for line in stage.log.read_text().splitlines() if line.startswith("drumbeat: ")]
    name = "lifespan 'resources'" if variable == "RUDE_LIFESPAN" else "start-up task 'warm_up'"
    assert len(told) == 1 and f"{name} failed: " in told[0], stage.log.read_text()
    assert "Traceback" not in stage.log.read_text()


@pytest.mark.parametrize("kind", ["panic", "system exit", "keyboard interrupt"])
def test_a_lifespan_that_fails_when_it_closes_is_logged(stage: Stage, kind: str) -> None:
    stage.start(RUDE_CLOSING=kind)

    async def work() -> None:
        async with rude.app:
            await (await rude.good.enqueue(1)).result(timeout=20)

    asyncio.run(work())
    assert stage.stop()[0] == 0
    assert "a lifespan failed while it closed" in stage.log.read_text()


def test_a_supervisor_says_why_its_workers_do_not_start_and_does_not_hurry(stage: Stage) -> None:
    stage.start("--processes", "2", RUDE_LIFESPAN="system exit")
    until_sync(lambda: stage.log.read_text().count("waits before its restart") >= 2, deadline=30)
    log = stage.log.read_text()
    assert "lifespan 'resources' failed: SystemExit" in log
    assert log.count("worker process started") <= 8
    assert stage.stop()[0] == 0


# Ends that count where they happened; suspects.


@pytest.mark.parametrize("task", [rude.in_time_in_thread, rude.in_time_in_process], ids=["thread", "process"])
async def test_who_ended_in_time_has_not_timed_out_though_the_loop_was_held_up(stage: Stage, task: Any) -> None:
    stage.start("--drain", "1")
    async with rude.app as app:
        await rude.blocks_the_loop.enqueue()
        job = await task.enqueue()
        assert await job.result(timeout=30) == "in time"
        assert len(await app.jobs.attempts(job.id)) == 1
    assert stage.stop()[0] == 0


async def test_many_suspects_share_few_children_and_good_jobs_go_on(stage: Stage) -> None:
    count, gate, log = 24, stage.folder / "gate", stage.folder / "journal"
    first = stage.start("--concurrency", str(count))
    async with rude.app as app:
        jobs = await app.enqueue_many([rude.holds.bind(str(gate)) for _ in range(count)])
        await until(lambda: len(journal.read(log, "holds")) == count, deadline=20)
        first.kill()
        first.wait(10)
        second = stage.start("--concurrency", str(count), "--drain", "1")
        await until(lambda: len(journal.read(log, "holds")) >= count + 4, deadline=20)
        for number in range(30):
            assert await (await rude.good.enqueue(number)).result(timeout=20) == second.pid
        assert len(_children(second.pid)) <= 4
        gate.touch()
        children = {await job.result(timeout=40) for job in jobs}
        assert second.pid not in children and len(children) <= 4
        record = await app.jobs.show(jobs[0].id)
        assert (record.failures, record.crashes) == (0, 1)
    assert stage.stop()[0] == 0


def _children(pid: int) -> list[int]:
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    fields = [(int(stat.split()[0]), stat.rpartition(")")[2].split()) for stat in stats]
    return [child for child, (state, parent, *_) in fields if int(parent) == pid and state != "Z"]
