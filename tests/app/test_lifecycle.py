"""When an app opens and closes what it needs: never before the first call, once for each loop, never across a fork."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drumbeat import Drumbeat
from drumbeat.errors import ConfigError
from tests.waiting import until_sync

APPS = Path(__file__).parents[1] / "apps"


def run_program(name: str, folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(APPS / name), *arguments],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def greeting_app(file: Path) -> Drumbeat:
    app = Drumbeat(f"sqlite:///{file}")

    @app.task
    async def greet(name: str) -> None: ...

    return app


async def enqueued(app: Drumbeat) -> str:
    return (await app._internals.registry["greet"].enqueue("Ada")).id


def names_of(app: Drumbeat) -> set[str]:
    return {job.args for job in app.sync.jobs.list(limit=1_000)}


def test_import_and_constructor_do_no_io_and_read_no_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("this is not a settings file\n")
    done = run_program("constructing.py", tmp_path, DRUMBEAT_CONCURRENCY="garbage", DRUMBEAT_URL="garbage")
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert [path.name for path in tmp_path.iterdir()] == [".env"]


@pytest.mark.parametrize("setting", ["url", "namespace", "coordination", "outbox"])
def test_a_worker_of_an_app_whose_store_has_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Else the client's jobs would lie in one store, and the worker would wait at another."""
    monkeypatch.chdir(tmp_path)
    app = Drumbeat()

    @app.task
    async def greet(name: str) -> None: ...

    asyncio.run(enqueued(app))
    other = {"namespace": "other", "url": "postgresql://ada:hunter2@db/shop"}
    monkeypatch.setenv(f"DRUMBEAT_{setting.upper()}", other.get(setting, "sqlite:///other.db"))
    with pytest.raises(ConfigError) as refused:
        asyncio.run(asyncio.wait_for(app.serve(), 5))
    assert refused.value.setting == setting
    assert f"setting {setting} has changed" in str(refused.value)
    assert f"environment DRUMBEAT_{setting.upper()}" in str(refused.value) and "hunter2" not in str(refused.value)


def test_a_relative_file_is_another_one_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = greeting_app(Path("jobs.db"))
    asyncio.run(enqueued(app))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with pytest.raises(ConfigError, match="setting url has changed"):
        asyncio.run(asyncio.wait_for(app.serve(), 5))


def test_settings_are_resolved_at_first_use_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Drumbeat()
    monkeypatch.setenv("DRUMBEAT_URL", f"sqlite:///{tmp_path}/a.db")
    assert app.settings.url == f"sqlite:///{tmp_path}/a.db"
    monkeypatch.setenv("DRUMBEAT_URL", f"sqlite:///{tmp_path}/b.db")
    assert app.settings.url == f"sqlite:///{tmp_path}/a.db"


def test_a_bad_setting_is_told_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMBEAT_CONCURRENCY", "garbage")
    app = Drumbeat()
    with pytest.raises(ConfigError, match=r"concurrency \(environment DRUMBEAT_CONCURRENCY\)"):
        _ = app.settings


def test_one_app_works_on_one_loop_after_another_and_closes_with_each(tmp_path: Path) -> None:
    app = greeting_app(tmp_path / "a.db")
    before = set(threading.enumerate())

    async def enqueue(name: str) -> None:
        await app._internals.registry["greet"].enqueue(name)

    for name in ("Ada", "Bob"):
        asyncio.run(enqueue(name))
        until_sync(lambda: set(threading.enumerate()) <= before, what="the end of the store's threads")
    assert names_of(app) == {'{"name":"Ada"}', '{"name":"Bob"}'}
    app.sync.close()


def test_a_loop_that_is_closed_by_hand_leaves_no_thread_behind(tmp_path: Path) -> None:
    app = greeting_app(tmp_path / "a.db")
    before = set(threading.enumerate())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(enqueued(app))
    loop.close()
    until_sync(lambda: set(threading.enumerate()) <= before, what="the end of the store's threads")
    asyncio.run(enqueued(app))
    assert len(app.sync.jobs.list()) == 2
    app.sync.close()


def test_one_app_works_on_two_loops_at_the_same_time(tmp_path: Path) -> None:
    app = greeting_app(tmp_path / "a.db")
    together = threading.Barrier(2)

    async def enqueue(first: int) -> None:
        async with app:
            together.wait(10)
            for number in range(first, first + 20):
                await app._internals.registry["greet"].enqueue(str(number))
            together.wait(10)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(asyncio.run, enqueue(first)) for first in (0, 100)]:
            done.result()
    assert len(names_of(app)) == 40
    app.sync.close()


def test_a_handle_made_on_one_loop_may_be_used_on_another(tmp_path: Path) -> None:
    app = greeting_app(tmp_path / "a.db")

    async def enqueue():  # type: ignore[no-untyped-def]
        return await app._internals.registry["greet"].enqueue("Ada")

    handle = asyncio.run(enqueue())  # type: ignore[no-untyped-call]
    assert asyncio.run(handle.job()).id == handle.id


async def test_the_app_may_be_entered_twice_on_a_loop_and_the_last_exit_closes(tmp_path: Path) -> None:
    app = greeting_app(tmp_path / "a.db")
    async with app:
        store = await app._internals.store()
        async with app:
            assert await app._internals.store() is store
        assert await app._internals.store() is store
        await app._internals.registry["greet"].enqueue("Ada")
    assert await app._internals.store() is not store
    await app.close()


async def test_a_closed_app_opens_again_when_it_is_called(tmp_path: Path) -> None:
    app = greeting_app(tmp_path / "a.db")
    await app._internals.registry["greet"].enqueue("Ada")
    await app.close()
    await app._internals.registry["greet"].enqueue("Bob")
    assert len(await app.jobs.list()) == 2
    await app.close()


async def test_calls_at_the_same_time_open_one_store(tmp_path: Path) -> None:
    app = greeting_app(tmp_path / "a.db")
    async with asyncio.TaskGroup() as group:
        opened = [group.create_task(app._internals.store()) for _ in range(20)]
    assert len({id(task.result()) for task in opened}) == 1
    await app.close()


async def test_a_store_that_cannot_be_opened_is_tried_again_at_the_next_call(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    app = greeting_app(folder / "a.db")
    folder.write_text("a file where the folder should be")
    with pytest.raises(ConfigError):
        await app._internals.registry["greet"].enqueue("Ada")
    folder.unlink()
    folder.mkdir()
    assert (await app._internals.registry["greet"].enqueue("Ada")).created
    await app.close()


def test_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    done = run_program("forking.py", tmp_path)
    assert done.stderr == ""
    assert done.stdout.split() == ["child", "ok", "parent", "ok", "7"]


def test_a_child_forked_in_a_coroutine_has_connections_of_its_own(tmp_path: Path) -> None:
    done = run_program("forking_on_loop.py", tmp_path)
    assert done.stderr == ""
    assert done.stdout.split() == ["child", "ok", "parent", "ok", "4"]


def test_many_threads_may_call_at_the_same_time_and_share_one_loop(tmp_path: Path) -> None:
    app = greeting_app(tmp_path / "a.db")
    with ThreadPoolExecutor(16) as threads:
        handles = list(
            threads.map(lambda number: app._internals.registry["greet"].enqueue_sync(str(number)), range(200))
        )
    assert len({handle.id for handle in handles}) == 200
    assert len(names_of(app)) == 200
    assert [thread.name for thread in threading.enumerate()].count("drumbeat-sync-loop") == 1
    app.sync.close()


def test_a_program_that_made_sync_calls_ends_by_itself(tmp_path: Path) -> None:
    done = run_program("ending.py", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_ctrl_c_ends_a_sync_wait(tmp_path: Path) -> None:
    line = [sys.executable, str(APPS / "waiting_sync.py")]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "waiting\n"
            program.send_signal(2)
            assert program.communicate(timeout=30)[0] == "interrupted, and the next call works: pending\n"
        finally:
            program.kill()


def test_several_apps_in_one_process_keep_their_jobs_apart(tmp_path: Path) -> None:
    one, two = greeting_app(tmp_path / "1.db"), greeting_app(tmp_path / "2.db")
    one._internals.registry["greet"].enqueue_sync("Ada")
    two._internals.registry["greet"].enqueue_sync("Bob")
    assert names_of(one) == {'{"name":"Ada"}'}
    assert names_of(two) == {'{"name":"Bob"}'}
    one.sync.close()
    two.sync.close()


def test_namespaces_keep_jobs_of_one_file_apart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    one, two = Drumbeat(url, namespace="one"), Drumbeat(url, namespace="two")

    @one.task
    async def greet() -> None: ...

    greet.enqueue_sync()
    assert len(one.sync.jobs.list()) == 1
    assert two.sync.jobs.list() == []
    one.sync.close()
    two.sync.close()


def test_a_program_that_runs_itself_shows_its_logs_with_their_fields(tmp_path: Path) -> None:
    done = run_program("running_itself.py", tmp_path)
    assert done.returncode == 0
    assert "task=fail" in done.stderr
    assert "no luck" in done.stderr


def test_a_program_that_has_configured_logging_keeps_its_own(tmp_path: Path) -> None:
    done = run_program("running_itself.py", tmp_path, "own")
    assert done.returncode == 0
    assert done.stderr.startswith("mine: ")
    assert "task=fail" not in done.stderr
