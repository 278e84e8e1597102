"""The folders of servers that tests start: named after the process that made them, and swept when it is gone.

Whoever is killed cannot clean up. What such a process left, servers that still run among it, is ended and removed by the
next run; what a living one has is left alone.

Those of tests are in memory, where there is plenty: a new database is 300 new files, which took 220 ms of CPU on the disk of a
virtual machine, and take 12 there. Whoever measures (bench) does not ask for it, and has the disk.
"""

import functools
import os
import re
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.waiting import until_sync

_OURS = re.compile(r"drumbeat-(?:postgres|pgbouncer|redis|nats)-(\d+)-\w+")


_MEMORY = Path("/dev/shm")
_PLENTY = 6 << 30
"""A whole run has less than half of it."""


def make(kind: str, *, in_memory: bool = False) -> Path:
    place = _quickest() if in_memory else None
    return Path(tempfile.mkdtemp(prefix=f"drumbeat-{kind}-{os.getpid()}-", dir=place))


@functools.cache
def _quickest() -> Path | None:
    """Memory if there is plenty of it and programs may lie there, else None: the usual place."""
    try:
        there = os.statvfs(_MEMORY)
    except OSError:
        return None
    can_run = not there.f_flag & os.ST_NOEXEC
    return _MEMORY if can_run and min(there.f_bavail * there.f_frsize, _available()) >= _PLENTY else None


def _available() -> int:
    """Bytes of memory that programs may still ask for."""
    told = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(told[1]) << 10 if told else 0


def sweep() -> None:
    """End and remove what processes that are gone have left."""
    for folder in [each for place in _places() for each in place.iterdir()]:
        named = _OURS.fullmatch(folder.name)
        if named is not None and not Path(f"/proc/{named[1]}").exists():
            for pid in _working_in(folder):
                _end(pid)
            shutil.rmtree(folder, ignore_errors=True)


def _places() -> list[Path]:
    return [place for place in (Path(tempfile.gettempdir()), _MEMORY) if place.exists()]


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
