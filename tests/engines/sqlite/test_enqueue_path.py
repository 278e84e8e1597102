"""How long the path of `await task.enqueue(...)` is on SQLite, from the call to the disk and back.

The counting rule: a profiler sees every function of `src/drumbeat` that is entered on any thread while one job is enqueued in
a warm store. A comprehension belongs to the function that it is written in; a lambda counts. A function is on the path if it
carries the job: if its arguments or what it returns, written out by `repr`, contain the job's argument or its id. The others
are leaf calls (clock, locks, checks, hints); LEAF_CALLS names each, so that no new one comes unseen.
"""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import drumbeat
from drumbeat import Drumbeat
from tests.waiting import until

SOURCE = f"{Path(drumbeat.__file__).parent}/"
MARK = 20230917
MAX_FILES, MAX_FUNCTIONS = 9, 18

PATH = [
    # The caller's event loop.
    ("tasks/task.py", "Task.enqueue"),
    ("tasks/task.py", "Task._build_job"),
    ("codec/signature.py", "Signature.encode"),
    ("client/__init__.py", "Client.enqueue"),
    ("store/sqlite/jobs.py", "SqliteJobs.add"),
    ("store/sqlite/database_thread.py", "DatabaseThread.submit"),
    # The writer thread.
    ("store/sqlite/database_thread.py", "DatabaseThread._main"),
    ("store/sqlite/writer.py", "WriteHandler.run_group"),
    ("store/sqlite/writer.py", "WriteHandler._run_transaction"),
    ("store/sqlite/writer.py", "WriteHandler._run_unit"),
    ("store/sqlite/insert.py", "SqliteInserter.add"),
    ("store/sqlite/insert.py", "insert_row"),
    ("store/sqlite/connection.py", "SqliteConnection.run_rows"),
    ("store/sqlite/fsync_thread.py", "FsyncThread.after_fsync"),
    # The fsync thread.
    ("store/sqlite/fsync_thread.py", "FsyncThread._main"),
    ("store/sqlite/writer.py", "WriteHandler._acknowledge"),
    ("store/sqlite/database_thread.py", "deliver"),
    # The caller's event loop.
    ("store/sqlite/database_thread.py", "_set_results"),
]
FLUSH_DELAY = ("store/sqlite/wake.py", "SqliteNotifier.flush_delay")
LEAF_CALLS = {
    # Before it is submitted: the loop, the id, tracing, the open store, free disk space.
    ("loop_check.py", "awaited_on_loop"),
    ("ids.py", "new_job_id"),
    ("ids.py", "_IdGenerator._start_millisecond"),
    ("tracing.py", "get_span_factory"),
    ("client/__init__.py", "Client.store"),
    ("store/sqlite/file_checks.py", "DiskSpaceGuard.check"),
    ("clock.py", "SystemClock.monotonic"),
    # Around the transaction: the write lock, requests that join, the time, BEGIN and COMMIT, the length of the log,
    # numbers of claims that are reserved.
    ("store/sqlite/write_lock.py", "WriteLock.__enter__"),
    ("store/sqlite/write_lock.py", "WriteLock.__exit__"),
    ("store/sqlite/database_thread.py", "DatabaseThread._take_queued"),
    ("clock.py", "SystemClock.now_us"),
    ("store/sqlite/connection.py", "SqliteConnection.run"),
    ("store/sqlite/connection.py", "SqliteConnection.in_transaction"),
    ("store/sqlite/writer.py", "WriteHandler._begin"),
    ("store/sqlite/writer.py", "WriteHandler._checkpoint"),
    ("store/sqlite/token_clock.py", "TokenClock.is_reserved"),
    ("store/sqlite/token_clock.py", "TokenClock.lowest"),
    # Hints to workers.
    ("store/sqlite/writer.py", "WriteContext.notify"),
    ("store/sqlite/wake.py", "SqliteNotifier.notify"),
    ("store/sqlite/connection.py", "SqliteConnection.value"),
    ("store/sqlite/rows.py", "texts"),
    ("store/sqlite/wake.py", "SqliteNotifier.flush"),
    ("store/sqlite/writer.py", "WriteHandler.idle_timeout"),
    ("store/sqlite/writer.py", "WriteHandler.on_idle"),
    FLUSH_DELAY,
    # The disk, and whether the file is still the one that was opened.
    ("store/sqlite/fsync_thread.py", "fsync_file"),
    ("store/sqlite/file_checks.py", "FileIdentity.check"),
    ("store/sqlite/file_checks.py", "FileIdentity._compare_inodes"),
    ("store/sqlite/file_checks.py", "inode_of"),
}
MAKERS_OF_THE_ID = {("ids.py", "new_job_id")}
"""Carries by the rule, because it returns the id; counted as a leaf."""

Function = tuple[str, str]


class CallRecorder:
    """A profiler: the functions of the package that are entered, with what goes in and comes out."""

    def __init__(self) -> None:
        self.calls: list[tuple[Function, str]] = []

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(SOURCE):
            return
        function = code.co_filename.removeprefix(SOURCE), code.co_qualname.partition(".<locals>.<")[0]
        if event == "return":
            self.calls.append((function, repr(value)))
        elif not code.co_name.startswith("<") or code.co_name == "<lambda>":
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04)]
            self.calls.append((function, repr([frame.f_locals[name] for name in names if name != "self"])))

    def entered(self) -> set[Function]:
        return {function for function, _ in self.calls}

    def last_answer(self, function: Function) -> str | None:
        return next((text for found, text in reversed(list(self.calls)) if found == function), None)

    def carriers(self, marks: tuple[str, ...]) -> set[Function]:
        return {function for function, text in self.calls if any(mark in text for mark in marks)}


@pytest.fixture
def recorder() -> Iterator[CallRecorder]:
    recorder = CallRecorder()
    threading.setprofile(recorder)  # for the threads of the store, which start with its first calls
    yield recorder
    threading.setprofile(None)
    sys.setprofile(None)


async def test_the_path_of_an_enqueue_is_short(tmp_path: Path, recorder: CallRecorder) -> None:
    async with Drumbeat(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        async def count(number: int) -> None: ...

        for number in range(5):
            await count.enqueue(number)
        # The end of a burst of hints is sent, and the writer thread has nothing left to do.
        await until(lambda: recorder.last_answer(FLUSH_DELAY) == repr(None), what="the burst of hints")
        loops_of_threads = {
            (file, name) for file, name in recorder.entered() if name in ("DatabaseThread._main", "FsyncThread._main")
        }
        recorder.calls.clear()
        sys.setprofile(recorder)
        handle = await count.enqueue(MARK)
        sys.setprofile(None)
        entered, carriers = recorder.entered(), recorder.carriers((str(MARK), handle.id))
    # Both were entered when their threads started, and take the job out of a queue.
    path = carriers - MAKERS_OF_THE_ID | loops_of_threads
    assert path == set(PATH)
    assert len(path) <= MAX_FUNCTIONS
    assert len({file for file, _ in path}) <= MAX_FILES
    assert entered - path <= LEAF_CALLS
