"""A plugin of pytest that writes down what each test touches: lines of the package, statements of SQL, scripts of Lua, and
whether it starts a process of Python, in which nothing is seen. `TRACE_VARIABLE` names the file that is written."""

import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import msgspec
import pytest

from tests.mutation.nearest import is_mutated
from tests.mutation.touch_map import TestTouches, TracedTests
from tests.planting import PACKAGE

TRACE_VARIABLE = "DRUMBEAT_MUTATION_TRACE"


class Tracer:
    def __init__(self, target: Path) -> None:
        self._target = target
        files = [path for path in PACKAGE.rglob("*.py") if is_mutated(path.relative_to(PACKAGE).as_posix())]
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=list(map(str, files)))
        self._seconds: dict[str, float] = {}
        self._names: dict[str, set[str]] = {}
        self._failed: set[str] = set()
        self._seen: set[str] = set()

    def start(self) -> None:
        _watch_statements(self)
        _watch_scripts(self)
        sys.addaudithook(self._watch_processes)
        self._coverage.start()

    def see(self, name: str) -> None:
        self._seen.add(name)

    def _watch_processes(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.fork" or (
            event == "subprocess.Popen" and Path(os.fsdecode(arguments[0])).name.startswith(("python", "drumbeat"))
        ):
            self.see("process")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        self._seen = self._names[item.nodeid] = set()
        started = time.monotonic()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.monotonic() - started

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        lines = self._collect_lines()
        tests = {
            id: TestTouches(seconds=seconds, lines=lines.get(id, {}), names=frozenset(self._names[id]))
            for id, seconds in self._seconds.items()
            if id not in self._failed
        }
        self._target.write_bytes(msgspec.msgpack.encode(TracedTests(tests=tests, failed=sorted(self._failed))))

    def _collect_lines(self) -> dict[str, dict[str, list[int]]]:
        """By test and file."""
        found: dict[str, dict[str, list[int]]] = {}
        data = self._coverage.get_data()
        for path in data.measured_files():
            file = Path(path).relative_to(PACKAGE).as_posix()
            for line, contexts in sorted(data.contexts_by_lineno(path).items()):
                for context in contexts:
                    found.setdefault(context, {}).setdefault(file, []).append(line)
        return found


def pytest_configure(config: pytest.Config) -> None:
    tracer = Tracer(Path(os.environ[TRACE_VARIABLE]))
    tracer.start()
    config.pluginmanager.register(tracer)


def _watch_statements(tracer: Tracer) -> None:
    from drumbeat.store.sqlfile import Statements

    def get(statements: Statements, name: str) -> Any:
        if not name.startswith("_"):
            tracer.see(f"sql {name}")
        return object.__getattribute__(statements, name)

    setattr(Statements, "__getattribute__", get)  # noqa: B010


def _watch_scripts(tracer: Tracer) -> None:
    from drumbeat.store.redis.pool import RedisPool

    run = RedisPool.run

    async def run_seen(pool: RedisPool, name: str, *args: Any, **options: Any) -> Any:
        tracer.see(f"lua {name}")
        return await run(pool, name, *args, **options)

    setattr(RedisPool, "run", run_seen)  # noqa: B010
