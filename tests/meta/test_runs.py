"""How the tests themselves are run: none may hang for ever, and Ctrl-C reaches whoever they send it to."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_one(folder: Path, body: str, *options: str, **how: object) -> "subprocess.CompletedProcess[str]":
    """One test in a file of its own, under the settings and the conftest of this project."""
    file = folder / "test_one.py"
    file.write_text(body)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    return subprocess.run(  # type: ignore[no-any-return]
        [*line, "-p", "tests.conftest", *options, str(file)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=60,
        **how,  # type: ignore[call-overload]
    )


def test_a_test_that_hangs_is_ended_with_all_stacks(tmp_path: Path) -> None:
    body = "import threading\ndef test_hangs():\n    threading.Event().wait()\n"
    done = run_one(tmp_path, body, "-o", "faulthandler_timeout=0.5")
    assert done.returncode != 0
    assert "Timeout" in done.stderr and "test_hangs" in done.stderr


def test_ctrl_c_is_heard_also_where_the_shell_ignores_it(tmp_path: Path) -> None:
    body = (
        "import os, signal, subprocess, sys\n"
        "import pytest\n"
        "def test_here():\n"
        "    with pytest.raises(KeyboardInterrupt):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "def test_in_a_child():\n"
        "    code = 'import os, signal; os.kill(os.getpid(), signal.SIGINT)'\n"
        "    assert subprocess.run([sys.executable, '-c', code], capture_output=True).returncode == -signal.SIGINT\n"
    )
    done = run_one(tmp_path, body, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert (done.returncode, done.stdout.splitlines()[-1][:8]) == (0, "2 passed"), done.stdout
