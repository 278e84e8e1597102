"""Makes the map of what tests touch (touch_map.py): runs those that are not in it yet, or have changed, under tracer.py."""

import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.mutation.nearest import find_nearest, is_mutated
from tests.mutation.runner import PLUGINS
from tests.mutation.selection import ENGINES_VARIABLE
from tests.mutation.touch_map import TouchMap, TracedTests
from tests.mutation.tracer import TRACE_VARIABLE
from tests.planting import PACKAGE, ROOT

# They try thousands of texts on modules that are not mutated.
NOT_TRACED = {"test_codec.py", "test_codec_refusals.py", "test_codec_results.py", "test_cron.py"}
ENGINES = "sqlite,postgres,valkey,pair"
FILES_AT_ONCE = 12
TIME_LIMIT_S = 900


def complete_map(processes: int, *, anew: bool = False) -> TouchMap:
    """The map, with all tests of the folders in it."""
    touch_map = TouchMap() if anew else TouchMap.load()
    wanted = list_test_files()
    for file in [file for file in touch_map.files if file not in wanted]:
        del touch_map.files[file]
    missing = [file for file in wanted if not touch_map.is_fresh(file)]
    if missing:
        started = time.monotonic()
        print(f"what {len(missing)} files of tests touch is traced, once", flush=True)
        _trace_all(touch_map, missing, processes)
        print(f"traced in {time.monotonic() - started:.0f} s", flush=True)
    return touch_map


def list_test_files() -> list[str]:
    """All that stand near to a module that is mutated."""
    modules = (path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.*"))
    files = {test: None for file in sorted(modules) if is_mutated(file) for test in find_nearest(file).tests}
    return [file for file in files if file.rpartition("/")[2] not in NOT_TRACED]


def _trace_all(touch_map: TouchMap, missing: Sequence[str], processes: int) -> None:
    waiting: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    for start in range(0, len(missing), FILES_AT_ONCE):
        waiting.put(list(missing[start : start + FILES_AT_ONCE]))
    mutex = threading.Lock()

    def work() -> None:
        while True:
            try:
                files = waiting.get_nowait()
            except queue.Empty:
                return
            traced = _trace(files)
            with mutex:
                for test in traced.failed:
                    print(f"fails, so it notices nothing: {test}", flush=True)
                for file in files:
                    tests = {id: test for id, test in traced.tests.items() if id.startswith(f"{file}::")}
                    touch_map.add(file, tests)
                touch_map.save()

    threads = [threading.Thread(target=work) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _trace(files: Sequence[str]) -> TracedTests:
    with tempfile.TemporaryDirectory(prefix="drumbeat-trace-") as folder:
        written = Path(folder) / "touches"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(ROOT)]),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(folder) / "hypothesis"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            ENGINES_VARIABLE: ENGINES,
            TRACE_VARIABLE: str(written),
        }
        plugins = [part for plugin in (*PLUGINS, "tests.mutation.tracer") for part in ("-p", plugin)]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--tb=short", *plugins, "--hypothesis-seed=0", *files],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
        )
        if not written.exists():
            raise SystemExit(f"the tests could not be traced:\n{ran.stdout[-3000:]}{ran.stderr[-1000:]}")
        return msgspec.msgpack.decode(written.read_bytes(), type=TracedTests)
