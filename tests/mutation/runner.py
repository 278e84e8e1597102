"""Plants a mutant, or a known bug, in a copy of the source and runs the tests that were chosen for it.

Each process has one copy, which keeps its compiled modules; the mutated file is put back afterwards. It comes before the
installed package on the path of modules, also for the processes that tests start.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import TracebackType

import msgspec

from tests.mutation.choice import ChosenTest
from tests.mutation.known_bugs import KnownBug
from tests.mutation.mutants import Mutant, apply
from tests.mutation.nearest import Nearest
from tests.mutation.selection import ENGINES_VARIABLE, TESTS_VARIABLE, TestOrder
from tests.planting import ROOT, copy_package

TIME_LIMIT_S = 240
# A single test that takes longer hangs: pytest is ended.
MAX_TEST_S = 40
# Where it is known how long a test takes.
MIN_TEST_S = 12
PATIENCE = 5
INTERRUPT_GRACE_S = 15
# What the tests need. To load all that are installed is half of the time that pytest takes to start.
PLUGINS = (
    "pytest_asyncio.plugin",
    "_hypothesis_pytestplugin",
    "drumbeat.testing.pytest_plugin",
    "tests.mutation.selection",
    "no:cacheprovider",
)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*)$", re.MULTILINE)
PASSED = 0
NO_TEST = "pytest itself"


class Verdict(StrEnum):
    NOTICED = "noticed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    mutant: Mutant
    verdict: Verdict
    seconds: float
    tests: int = 0
    """How many were to run."""
    noticed_by: str = ""
    has_hung: bool = False
    """Noticed because that test did not end, or ended pytest itself."""
    output: str = ""


class KnownBugTrial(msgspec.Struct, frozen=True, kw_only=True):
    bug: KnownBug
    unnoticed_by: tuple[str, ...]
    """Tests that did not fail; empty: all noticed it."""
    seconds: float
    output: str = ""


class SourceCopy:
    """A copy of the package in a folder of its own."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="drumbeat-mutant-"))
        copy_package(self._folder)

    def __enter__(self) -> "SourceCopy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def try_mutant(self, mutant: Mutant, tests: Sequence[ChosenTest], *, limit: float = TIME_LIMIT_S) -> Trial:
        if not tests:
            return Trial(mutant=mutant, verdict=Verdict.SURVIVED, seconds=0, output="no test touches it")
        started = time.monotonic()
        with self._edited(mutant.file, lambda source: apply(mutant.edit, source)):
            code, output, current = self.run_chosen(tests, limit=limit)
        verdict = {None: Verdict.TIMED_OUT, PASSED: Verdict.SURVIVED}.get(code, Verdict.NOTICED)
        failed = _first_failure(output)
        return Trial(
            mutant=mutant,
            verdict=verdict,
            seconds=time.monotonic() - started,
            tests=len(tests),
            noticed_by=(failed or current or NO_TEST) if verdict is Verdict.NOTICED else "",
            has_hung=verdict is Verdict.NOTICED and not failed,
            output=output[-3000:],
        )

    def try_known_bug(self, bug: KnownBug, *, limit: float = TIME_LIMIT_S) -> KnownBugTrial:
        """All tests of the bug run: each of them must fail."""
        started = time.monotonic()
        with self._edited(bug.file, bug.apply):
            code, output = self.run(bug.nearest, limit=limit, stops_at_first=False)
        return KnownBugTrial(
            bug=bug,
            unnoticed_by=tuple(test for test in bug.tests if code is None or not _has_failed(test, output)),
            seconds=time.monotonic() - started,
            output=output[-3000:],
        )

    @contextmanager
    def _edited(self, name: str, edit: Callable[[str], str]) -> Iterator[None]:
        file = self._folder / "drumbeat" / name
        source = file.read_text()
        self._write(file, edit(source))
        try:
            yield
        finally:
            self._write(file, source)

    def run(self, nearest: Nearest, *, limit: float, stops_at_first: bool = True) -> tuple[int | None, str]:
        """The exit status of pytest, None if it took too long, and what it printed."""
        arguments = ["-x"] if stops_at_first else []
        arguments += ["-o", f"faulthandler_timeout={MAX_TEST_S}", *nearest.tests]
        return self._run_pytest(arguments, {ENGINES_VARIABLE: ",".join(sorted(nearest.engines))}, limit)

    def run_chosen(
        self, tests: Sequence[ChosenTest], *, limit: float, stops_at_first: bool = True
    ) -> tuple[int | None, str, str]:
        """Likewise, and the test that ran last."""
        files = dict.fromkeys(test.id.partition("::")[0] for test in tests)
        arguments = ["-x"] if stops_at_first else []
        # The plugin has its own limit for each test.
        arguments += ["-o", "faulthandler_timeout=0", *files]
        current = self._folder / "current"
        current.write_text("")
        limits = {test.id: MIN_TEST_S + PATIENCE * test.seconds for test in tests}
        order = self._folder / "order.json"
        order.write_bytes(msgspec.json.encode(TestOrder(limits=limits, current=str(current))))
        code, output = self._run_pytest(arguments, {TESTS_VARIABLE: str(order)}, limit)
        return code, output, current.read_text()

    def _run_pytest(
        self, arguments: Sequence[str], variables: Mapping[str, str], limit: float
    ) -> tuple[int | None, str]:
        arguments = [
            *("-q", "--tb=line", "--hypothesis-seed=0"),
            *(part for plugin in PLUGINS for part in ("-p", plugin)),
            *arguments,
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self._folder), str(ROOT)]),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._folder / "hypothesis"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **variables,
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with tempfile.TemporaryFile("w+") as printed:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = _wait(process, limit)
            finally:
                _kill_group(process)
            printed.seek(0)
            return code, printed.read()

    def _write(self, file: Path, text: str) -> None:
        """A compiled module is known by size and second of its source: after a small edit both may be the same."""
        file.write_text(text)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()


def _wait(process: subprocess.Popen[bytes], limit: float) -> int | None:
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        # Interrupted, pytest ends the servers that it has started.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(INTERRUPT_GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _has_failed(test: str, output: str) -> bool:
    """On any engine. A test that could not be set up has not failed: the bug broke something else."""
    return re.search(rf"^FAILED {re.escape(test)}(?:\[| |$)", output, re.MULTILINE) is not None


def _first_failure(output: str) -> str:
    """Empty: none has failed. An id may have spaces in it."""
    found = FAILED.search(output)
    return found[1].partition(" - ")[0] if found is not None else ""
