"""Imported by every Python whose PYTHONPATH begins with this folder: takes away what macOS lacks (Python before 3.13).

It has no /proc, no pidfd, no waitid, no fdatasync, no signals for pipes, and another clock. It has F_FULLFSYNC, which the
kernel of Linux refuses: so we go the way of file systems that lack it. The id of a boot comes from sysctl, here TEST_BOOT.
"""

import ctypes
import fcntl
import os
import sys
import time
from typing import Any

for module, names in {
    os: "pidfd_open waitid P_PID P_PIDFD WEXITED WNOWAIT CLD_EXITED waitid_result fdatasync posix_fallocate posix_fadvise"
    " memfd_create eventfd sched_getaffinity sched_setaffinity copy_file_range splice getrandom O_DIRECT O_TMPFILE",
    fcntl: "F_SETSIG F_GETSIG F_NOTIFY F_ADD_SEALS F_SETPIPE_SZ",
    time: "CLOCK_BOOTTIME",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
vars(fcntl)["F_FULLFSYNC"] = 51


def no_proc(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "this system has no", arguments[0])


def sysctlbyname(name: bytes, answer: Any, size: Any, *_: Any) -> int:
    if name != b"kern.bootsessionuuid":
        return -1
    answer.value = os.environ.get("TEST_BOOT", "first").encode()
    size._obj.value = len(answer.value) + 1
    return 0


class LibraryOfMac:
    """libc, as far as we use it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.sysctlbyname = sysctlbyname


ctypes.CDLL = LibraryOfMac  # type: ignore[misc, assignment]
sys.addaudithook(no_proc)
