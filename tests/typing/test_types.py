"""The signature of a task is the signature of its enqueue, as mypy and pyright see it."""

import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "right_calls.py", HERE / "wrong_calls.py"


# Each looks at both files at once: what it must know of Drumbeat is most of its time.


@functools.cache
def by_mypy() -> dict[str, set[int]]:
    """The lines with errors, of each file."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir=.mypy_cache/calls"]
    output = subprocess.run([*command, str(RIGHT), str(WRONG)], capture_output=True, text=True, cwd=ROOT).stdout
    assert "Cannot find implementation" not in output
    return {
        path.name: {int(line) for line in re.findall(rf"{path.name}:(\d+): error:", output)} for path in (RIGHT, WRONG)
    }


@functools.cache
def by_pyright() -> dict[str, set[int]]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(RIGHT), str(WRONG)]
    output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    report = json.loads(output[output.index("{") :])
    assert report["summary"]["filesAnalyzed"] == 2
    lines: dict[str, set[int]] = {RIGHT.name: set(), WRONG.name: set()}
    for found in report["generalDiagnostics"]:
        if found["severity"] == "error":
            lines[Path(found["file"]).name].add(found["range"]["start"]["line"] + 1)
    return lines


@pytest.mark.parametrize("lines_with_errors", [by_mypy, by_pyright])
def test_right_calls_are_accepted(lines_with_errors: Callable[[], dict[str, set[int]]]) -> None:
    assert lines_with_errors()[RIGHT.name] == set()


@pytest.mark.parametrize("lines_with_errors", [by_mypy, by_pyright])
def test_wrong_calls_are_errors_at_their_own_lines(lines_with_errors: Callable[[], dict[str, set[int]]]) -> None:
    lines = WRONG.read_text().splitlines()
    marked = {number for number, line in enumerate(lines, start=1) if line.endswith("# wrong")}
    assert len(marked) >= 20
    assert lines_with_errors()[WRONG.name] == marked
