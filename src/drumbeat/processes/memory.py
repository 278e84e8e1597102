"""How much memory a process takes."""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def resident_bytes(children: Iterable[int] = ()) -> int:
    """The resident memory of this process and of these children. Where there is no /proc (macOS, BSD): the most that this
    process alone has had."""
    try:
        total = _read_statm("self")
    except OSError:
        return _peak_bytes()
    for pid in children:
        with suppress(OSError):  # it has just exited
            total += _read_statm(str(pid))
    return total


def _read_statm(pid: str) -> int:
    return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak_bytes() -> int:
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1_024
