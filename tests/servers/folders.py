"""The folders of servers that tests start: named after the process that made them, and swept when it is gone.

Whoever is killed cannot clean up. What such a process left, servers that still run among it, is ended and removed by the
next run; what a living one has is left alone.
"""

import os
import re
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.waiting import until_sync

_OURS = re.compile(r"drumbeat-(?:postgres|pgbouncer|redis|nats)-(\d+)-\w+")


def make(kind: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"drumbeat-{kind}-{os.getpid()}-"))


def sweep() -> None:
    """End and remove what processes that are gone have left."""
    for folder in Path(tempfile.gettempdir()).iterdir():
        named = _OURS.fullmatch(folder.name)
        if named is not None and not Path(f"/proc/{named[1]}").exists():
            for pid in _working_in(folder):
                _end(pid)
            shutil.rmtree(folder, ignore_errors=True)


def _working_in(folder: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until_sync(lambda: not Path(f"/proc/{pid}/cwd").exists(), deadline=10, what=f"the end of process {pid}")
