"""The signature of a task is the signature of its enqueue, as mypy and pyright see it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RIGHT, WRONG = HERE / "right_calls.py", HERE / "wrong_calls.py"


def by_mypy(path: Path) -> set[int]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
    output = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[1]).stdout
    assert "Cannot find implementation" not in output
    return {int(line) for line in re.findall(rf"{path.name}:(\d+): error:", output)}


def by_pyright(path: Path) -> set[int]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    output = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[1]).stdout
    report = json.loads(output[output.index("{") :])
    assert report["summary"]["filesAnalyzed"] == 1
    errors = [found for found in report["generalDiagnostics"] if found["severity"] == "error"]
    return {found["range"]["start"]["line"] + 1 for found in errors}


@pytest.mark.parametrize("lines_with_errors", [by_mypy, by_pyright])
def test_right_calls_are_accepted(lines_with_errors: Callable[[Path], set[int]]) -> None:
    assert lines_with_errors(RIGHT) == set()


@pytest.mark.parametrize("lines_with_errors", [by_mypy, by_pyright])
def test_wrong_calls_are_errors_at_their_own_lines(lines_with_errors: Callable[[Path], set[int]]) -> None:
    lines = WRONG.read_text().splitlines()
    marked = {number for number, line in enumerate(lines, start=1) if line.endswith("# wrong")}
    assert len(marked) >= 20
    assert lines_with_errors(WRONG) == marked
