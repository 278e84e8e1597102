"""Jobs in processes of their own, with real processes and real signals."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from drumbeat import appref
from drumbeat.context import AbortReason, AbortSignal
from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import Failure
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.processes.frames import FramePipe
from drumbeat.processes.managed import ManagedProcess
from drumbeat.settings import Settings
from drumbeat.worker import child_protocol
from drumbeat.worker.child_pool import ChildFailed, ChildPool, ChildRun
from drumbeat.worker.child_protocol import RunJob
from drumbeat.worker.result import HandlerResult, ResultKind
from tests.waiting import until, until_sync

APP = "tests.apps.handlers:app"
SETTINGS = Settings(url="sqlite:////nowhere/jobs.db", concurrency=4)


def claimed(task: str, **arguments: object) -> ClaimedJob:
    from tests.apps.handlers import app

    known = app._internals.registry.find(task)
    return ClaimedJob(
        id=new_job_id(),
        token=1,
        task=task,
        queue="default",
        priority=5,
        key=None,
        args=msgspec.json.encode(arguments).decode(),
        signature=known.signature.hash if known else "",
        created_at=0,
        due_at=0,
        run_at=0,
        failures=2,
        crashes=0,
        retries=None,
        timeout=None,
        crash_limit=3,
        on_dead=None,
        replays=0,
        blocked_since=None,
    )


def is_alive(pid: int) -> bool:
    """A zombie is dead; in a container nobody may reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def written(path: Path) -> str:
    await until(lambda: path.exists() and path.read_text(), deadline=20, what=f"something in {path.name}")
    return path.read_text()


@pytest_asyncio.fixture
async def processes() -> AsyncIterator[ChildPool]:
    made = ChildPool(APP, SETTINGS, limit=2)
    yield made
    await made.close()
    assert made.pids == []


async def run(processes: ChildPool, job: ClaimedJob, **options: Any) -> HandlerResult:
    options = {"abort": AbortSignal(), "note": lambda job, value: None} | options
    return await processes.run(ChildRun(request=RunJob(job, InstanceId(""), 0), **options))  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def under_way(
    processes: ChildPool, job: ClaimedJob, **options: Any
) -> AsyncIterator["asyncio.Task[HandlerResult]"]:
    async with asyncio.TaskGroup() as group:
        yield group.create_task(run(processes, job, **options))


def value(ending: HandlerResult) -> Any:
    assert ending.kind is ResultKind.RETURNED, ending
    return msgspec.json.decode(ending.result or "null")


async def test_the_result_of_a_handler_comes_back(processes: ChildPool) -> None:
    assert value(await run(processes, claimed("add", one=2, two=3))) == 5


async def test_a_process_handler_runs_in_a_main_thread_without_a_loop_with_its_job_at_hand(
    processes: ChildPool,
) -> None:
    job = claimed("facts")
    found = value(await run(processes, job))
    assert found.pop("pid") != os.getpid()
    assert found == {"id": job.id, "attempt": 3, "main": True, "loop": False, "opened": ["open"], "url": SETTINGS.url}


async def test_a_suspect_of_any_kind_runs_in_a_child(processes: ChildPool) -> None:
    job = claimed("on_loop")
    assert value(await run(processes, job)).items() >= {"id": job.id, "opened": ["open"]}.items()
    job = claimed("in_thread")
    assert value(await run(processes, job)) == {"id": job.id, "main": False}
    assert value(await run(processes, claimed("in_bulk", value=21))) == 42


async def test_a_child_is_used_again(processes: ChildPool) -> None:
    pids = {value(await run(processes, claimed("facts")))["pid"] for _ in range(3)}
    assert pids == set(processes.pids)
    assert len(pids) == 1


async def test_no_more_children_than_the_limit_are_started(processes: ChildPool) -> None:
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(run(processes, claimed("facts"))) for _ in range(6)]
    assert len({value(each.result())["pid"] for each in runs}) == len(processes.pids) == 2


@pytest.mark.parametrize(
    ("task", "arguments", "how", "error"),
    [
        ("fail", {"text": "no luck"}, ResultKind.RAISED, ("ValueError", "no luck")),
        ("leave", {"code": 5}, ResultKind.RAISED, ("SystemExit", "5")),
        ("leave_loop", {"code": 5}, ResultKind.RAISED, ("SystemExit", "5")),
        ("skip", {}, ResultKind.SKIP_RETRY, ("drumbeat.retry.SkipRetry", "no use")),
        ("refuse", {"text": "no money"}, ResultKind.SKIP_RETRY, ("tests.apps.handlers.Unpayable", "no money")),
        ("bad_progress", {}, ResultKind.RAISED, ("drumbeat.errors.InvalidArguments", None)),
        ("add", {"one": "x"}, ResultKind.UNDECODABLE, ("Undecodable", None)),
    ],
)
async def test_what_a_handler_raises_is_its_ending_and_the_child_lives_on(
    processes: ChildPool, task: str, arguments: dict[str, Any], how: ResultKind, error: tuple[str, str | None]
) -> None:
    ending = await run(processes, claimed(task, **arguments))
    assert ending.kind is how
    assert ending.error is not None
    assert ending.error.type == error[0]
    assert error[1] in (None, ending.error.message)
    assert len(processes.pids) == 1


async def test_snooze_and_a_result_that_cannot_be_kept_come_back_as_such(processes: ChildPool) -> None:
    snoozed = await run(processes, claimed("snooze"))
    assert (snoozed.kind, snoozed.delay) == (ResultKind.SNOOZED, 60_000_000)
    kept = await run(processes, claimed("too_much"))
    assert (kept.kind, kept.result) == (ResultKind.RETURNED, None)
    assert "over the limit" in (kept.result_error or "")


@pytest.mark.parametrize(
    ("task", "arguments", "how"),
    [
        ("die", {"how": "kill"}, "SIGKILL"),
        ("die", {"how": "segfault"}, "SIGSEGV"),
        ("die", {"how": "exit"}, "exit code 0"),
        ("die_on_loop", {}, "exit code 7"),
    ],
)
async def test_the_death_of_a_child_is_its_jobs_crash(
    processes: ChildPool, task: str, arguments: dict[str, Any], how: str
) -> None:
    ending = await run(processes, claimed(task, **arguments))
    died = f"the process running this job died: {how}"
    assert ending == HandlerResult(kind=ResultKind.CRASHED, error=Failure("ProcessDied", died))
    assert value(await run(processes, claimed("add", one=1, two=1))) == 2


async def test_a_crash_is_seen_though_a_forked_process_holds_the_socket(processes: ChildPool, tmp_path: Path) -> None:
    ending = await run(processes, claimed("die_with_company", path=str(tmp_path / "pid")))
    os.kill(int(await written(tmp_path / "pid")), signal.SIGKILL)
    assert ending.kind is ResultKind.CRASHED
    assert "exit code 9" in ((ending.error and ending.error.message) or "")


async def test_a_cancelled_run_kills_its_child_and_what_that_had_started(processes: ChildPool, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    async with under_way(processes, claimed("hang_with_company", path=str(path))) as task:
        child, company = map(int, (await written(path)).split())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not Path(f"/proc/{child}").exists(), "dead, but not reaped"
    await until(lambda: not is_alive(company), what="the end of the handler's own program")
    assert processes.pids == []
    assert value(await run(processes, claimed("add", one=1, two=1))) == 2


async def test_a_run_cancelled_while_its_child_starts_leaves_nothing(processes: ChildPool) -> None:
    async with under_way(processes, claimed("add", one=1, two=1)) as task:
        await until(lambda: processes.pids, what="a child")
        task.cancel()
    assert processes.pids == []


async def test_the_handler_is_signalled_when_its_worker_drains(processes: ChildPool, tmp_path: Path) -> None:
    abort = AbortSignal()
    async with under_way(processes, claimed("listen", path=str(tmp_path / "pid")), abort=abort) as task:
        await written(tmp_path / "pid")
        abort.set(AbortReason.DRAINING)
    assert value(task.result()) == "draining"


async def test_a_handler_that_checks_ends_as_the_reason_asks(processes: ChildPool, tmp_path: Path) -> None:
    abort = AbortSignal()
    async with under_way(processes, claimed("obey", path=str(tmp_path / "pid")), abort=abort) as task:
        await written(tmp_path / "pid")
        abort.set(AbortReason.DRAINING)
    assert (task.result().kind, task.result().reason) == (ResultKind.ABORTED, AbortReason.DRAINING)


async def test_an_abort_that_was_set_before_is_sent_as_well(processes: ChildPool, tmp_path: Path) -> None:
    abort = AbortSignal()
    abort.set(AbortReason.DRAINING)
    assert value(await run(processes, claimed("listen", path=str(tmp_path / "pid")), abort=abort)) == "draining"


async def test_progress_comes_back_and_its_last_value_is_not_lost(processes: ChildPool) -> None:
    job, notes = claimed("count", to=20_000), []
    await run(processes, job, note=lambda job, value: notes.append((job, value)))
    assert notes[-1] == (job, {"at": 20_000})
    assert len(notes) < 100


async def test_progress_comes_back_while_the_handler_runs(processes: ChildPool) -> None:
    abort, notes = AbortSignal(), list[object]()
    async with under_way(processes, claimed("tell"), abort=abort, note=lambda job, value: notes.append(value)) as told:
        await until(lambda: notes == ["half"], what="what it has told")
        abort.set(AbortReason.DRAINING)
    assert value(told.result()) == "draining"


async def test_the_start_of_the_handler_is_reported(processes: ChildPool) -> None:
    begun: list[int] = []
    await run(processes, claimed("add", one=1, two=1), on_started=lambda: begun.append(1))
    assert begun == [1]


async def test_signals_of_others_do_not_end_a_child_but_its_own_programs(processes: ChildPool) -> None:
    assert value(await run(processes, claimed("signalled"))) == "alive, -15"


async def test_an_idle_child_that_died_costs_no_job(processes: ChildPool) -> None:
    pid = value(await run(processes, claimed("facts")))["pid"]
    os.kill(pid, signal.SIGKILL)
    assert value(await run(processes, claimed("facts")))["pid"] != pid


async def test_a_child_that_was_idle_for_long_is_closed_with_its_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_GOODBYE", str(tmp_path / "goodbye"))
    processes = ChildPool(APP, SETTINGS, limit=1, idle=0.01)
    await run(processes, claimed("add", one=1, two=1))
    await until(lambda: not processes.pids, what="the end of the idle child")
    assert (tmp_path / "goodbye").read_text() == "closed"
    await processes.close()


async def test_closing_lets_idle_children_close_their_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_GOODBYE", str(tmp_path / "goodbye"))
    processes = ChildPool(APP, SETTINGS, limit=1)
    await run(processes, claimed("add", one=1, two=1))
    await processes.close()
    assert (tmp_path / "goodbye").read_text() == "closed"
    assert processes.pids == []


@pytest.mark.parametrize(
    ("trouble", "problem"),
    [
        ("raise", "RuntimeError: no database password"),
        ("die", "died when it started: exit code 11"),
        ("lifespan", "RuntimeError: the pool is empty"),
    ],
)
async def test_a_child_that_cannot_start_is_no_crash_of_the_job(
    monkeypatch: pytest.MonkeyPatch, trouble: str, problem: str
) -> None:
    monkeypatch.setenv("TEST_TROUBLE", trouble)
    processes = ChildPool("tests.apps.broken:app", SETTINGS, limit=1)
    with pytest.raises(ChildFailed, match=problem):
        await run(processes, claimed("work"))
    assert processes.pids == []


async def test_a_task_that_the_child_does_not_have_is_no_crash_of_the_job(processes: ChildPool) -> None:
    with pytest.raises(ChildFailed, match="has no task 'gone'"):
        await run(processes, claimed("gone"))


ORPHANING = """
import asyncio, sys
from tests.worker.test_child_pool import APP, SETTINGS, ChildPool, claimed, run
asyncio.run(run(ChildPool(APP, SETTINGS, limit=1), claimed(sys.argv[1], path=sys.argv[2])))
"""


@pytest.mark.parametrize("task", ["hang", "hang_in_c", "hang_with_company"])
def test_the_children_of_a_killed_worker_die_in_the_middle_of_a_handler(tmp_path: Path, task: str) -> None:
    path = tmp_path / "pids"
    worker = subprocess.Popen([sys.executable, "-c", ORPHANING, task, path])
    until_sync(lambda: path.exists() and path.read_text(), deadline=20, what="the child's pid")
    pids = [int(pid) for pid in path.read_text().split()]
    assert all(map(is_alive, pids))
    worker.kill()
    worker.wait()
    until_sync(lambda: not any(map(is_alive, pids)), deadline=20, what="the end of the orphans")


async def test_a_child_that_has_no_lifeline_dies_with_its_link_in_the_middle_of_a_handler(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    arguments = {"ref": APP, "flags": appref.to_flags(SETTINGS)}
    child = ManagedProcess("drumbeat.worker.child:main", arguments, label="a child without a lifeline")
    try:
        link = await FramePipe.connect(child.link)
        await link.receive()  # it is ready
        link.send(child_protocol.encode(RunJob(claimed("hang_with_company", path=str(path)), InstanceId(""), 0)))
        pids = [int(pid) for pid in (await written(path)).split()]
        link.abort()
        await until(lambda: not any(map(is_alive, pids)), deadline=20, what="the end of the child and its company")
    finally:
        child.kill()
        await child.wait_for_exit()
        child.close()


def test_it_works_on_uvloop_and_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvloop

    factories: list[Callable[[], asyncio.AbstractEventLoop]] = [uvloop.new_event_loop, asyncio.new_event_loop]

    async def all_ways() -> None:
        processes = ChildPool(APP, SETTINGS, limit=1)
        assert value(await run(processes, claimed("add", one=1, two=2))) == 3
        assert (await run(processes, claimed("die", how="kill"))).kind is ResultKind.CRASHED
        await run(processes, claimed("add", one=1, two=2))
        await processes.close()
        assert processes.pids == []

    for factory in factories:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(all_ways())
        monkeypatch.delattr(os, "pidfd_open", raising=False)


@pytest.mark.parametrize("gone", [["waitid"], ["waitid", "pidfd_open"]], ids=" and ".join)
def test_it_works_without_waitid(monkeypatch: pytest.MonkeyPatch, gone: list[str], tmp_path: Path) -> None:
    """As on macOS before Python 3.13."""
    for name in gone:
        monkeypatch.delattr(os, name)

    async def main() -> None:
        processes = ChildPool(APP, SETTINGS, limit=1)
        assert value(await run(processes, claimed("add", one=1, two=2))) == 3
        assert (await run(processes, claimed("die", how="kill"))).kind is ResultKind.CRASHED
        assert value(await run(processes, claimed("add", one=1, two=2))) == 3
        await processes.close()
        assert processes.pids == []

    asyncio.run(main())
