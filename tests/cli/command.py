"""How tests of the command line call it: as a process of its own, or, for the quick ones, in this one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

from drumbeat.cli.program import program

PROGRAM = (sys.executable, "-m", "drumbeat")
COMMAND_TIMEOUT = 60.0


def build_environment(**more: str) -> dict[str, str]:
    """This one's, without any setting of Drumbeat and without a terminal's width."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRUMBEAT_", "COLUMNS"))}
    return kept | more


def call(
    *args: str, folder: Path, env: Mapping[str, str] | None = None, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """The real thing, to its end."""
    return subprocess.run(
        [*PROGRAM, *args],
        cwd=folder,
        env=build_environment(**(env or {})),
        input=typed,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT,
        check=False,
    )


@contextmanager
def start(*args: str, folder: Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """The real thing, while the body runs; killed at the end if it is still there."""
    process = subprocess.Popen(
        [*PROGRAM, *args],
        cwd=folder,
        env=build_environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def invoke(*args: str) -> Result:
    """In this process: quick, for what needs no app and no signals."""
    return CliRunner().invoke(program, args)


def read_refusal(result: Result | subprocess.CompletedProcess[str]) -> str:
    """The one line of a refusal: nothing else may be on stderr, and the exit code is 2."""
    code = result.exit_code if isinstance(result, Result) else result.returncode
    lines = result.stderr.splitlines()
    assert code == 2, (code, result.stdout, result.stderr)
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("drumbeat: ")
    return lines[0].removeprefix("drumbeat: ")
