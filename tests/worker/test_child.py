"""What handlers may do inside a child process, as they may in a worker."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from drumbeat.ids import JobId
from drumbeat.settings import Settings
from drumbeat.store.job_reads import get_job
from drumbeat.store.urls import open_store
from drumbeat.worker.child_pool import ChildPool
from tests.waiting import until
from tests.worker.test_child_pool import APP, claimed, run, value


@pytest.fixture
def url(app_url: str) -> str:
    return app_url


@pytest_asyncio.fixture
async def processes(url: str) -> AsyncIterator[ChildPool]:
    made = ChildPool(APP, Settings(url=url), limit=1)
    yield made
    await made.close()


@pytest.mark.parametrize("task", ["enqueue_from_process", "enqueue_from_loop"])
async def test_a_handler_enqueues_where_its_worker_works(processes: ChildPool, url: str, task: str) -> None:
    id = value(await run(processes, claimed(task, number=3)))
    async with await open_store(url) as store:
        assert (await get_job(store, JobId(id))).args == '{"one":3,"two":3}'


async def test_a_process_handler_may_run_a_loop_of_its_own_between_jobs_of_ours(processes: ChildPool) -> None:
    assert value(await run(processes, claimed("with_its_own_loop"))) == 42
    assert value(await run(processes, claimed("on_loop")))["opened"] == ["open"]


async def test_a_suspect_in_a_thread_may_talk_to_the_loop(processes: ChildPool) -> None:
    await run(processes, claimed("tell_loop"))
    assert value(await run(processes, claimed("ask_the_loop"))) == 42


async def test_nothing_leaks_from_job_to_job(processes: ChildPool) -> None:
    assert [value(await run(processes, claimed("stain"))) for _ in range(2)] == ["none", "none"]


async def test_a_child_whose_resources_broke_is_replaced(
    processes: ChildPool, caplog: pytest.LogCaptureFixture
) -> None:
    first = value(await run(processes, claimed("facts")))["pid"]
    await run(processes, claimed("break_lifespan"))
    await until(lambda: not processes.pids, what="the end of the child")
    assert value(await run(processes, claimed("facts")))["pid"] != first


SCRIPT = """
import asyncio, json, sys
from drumbeat.app import Drumbeat

app = Drumbeat()
number = 6

@app.task(pool="process")
def multiply(by: int) -> int:
    return number * by

def main():
    from drumbeat import appref, logs
    from drumbeat.settings import Settings
    from drumbeat.worker.child_pool import ChildPool
    from tests.worker.test_child_pool import claimed, run

    async def work():
        processes = ChildPool(appref.find_ref(app), Settings(), limit=1)
        job = claimed("multiply", by=7)
        print((await run(processes, job)).result)
        await processes.close()

    asyncio.run(work())

if __name__ == "__main__":
    main()
"""


def test_the_app_of_a_script_is_found_by_its_children(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        cwd=root,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("42", "")


LOGGING = """
import asyncio, sys
from drumbeat import logs
from tests.worker.test_child_pool import APP, SETTINGS, ChildPool, claimed, run

async def work():
    processes = ChildPool(APP, SETTINGS, limit=1)
    await run(processes, claimed("log_something"))
    await processes.close()

if sys.argv[1] != "none":
    logs.configure("info", sys.argv[1])
asyncio.run(work())
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("text", "WARNING shop: a handler speaks number=7"),
        ("json", '"message":"a handler speaks"'),
        ("none", "a handler speaks\n"),  # Python's own last resort
    ],
)
def test_a_child_logs_as_its_worker_does(how: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING, how],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
