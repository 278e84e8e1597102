"""A wall clock for servers that a test may step: a library over CLOCK_REALTIME, loaded by LD_PRELOAD, adds what a file says.

The file is that of tests/chaos/shared_clock.py. It is built by the machine's C compiler, in a folder that every user may read.
(Debian's libfaketime breaks Python 3.11, and other servers with their own ideas of time.)
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.chaos.shared_clock import SharedClock

FILE = "DRUMBEAT_STEPPED_CLOCK"
_SOURCE = f"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset_us;

__attribute__((constructor)) static void open_clock(void) {{
    const char *path = getenv("{FILE}");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = fd < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED) offset_us = found;
    if (fd >= 0) close(fd);
}}

int clock_gettime(clockid_t id, struct timespec *at) {{
    int failed = syscall(SYS_clock_gettime, id, at);
    if (!failed && offset_us && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {{
        int64_t ns = at->tv_sec * 1000000000LL + at->tv_nsec + *offset_us * 1000;
        at->tv_sec = ns / 1000000000;
        at->tv_nsec = ns % 1000000000;
    }}
    return failed;
}}

int gettimeofday(struct timeval *at, void *zone) {{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}}

time_t time(time_t *at) {{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}}
"""


def find_obstacle() -> str | None:
    return None if shutil.which("cc") else "there is no C compiler (cc)"


class SteppedClock(SharedClock):
    """Servers that are started with `environment` have it for their own."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="drumbeat-clock-"))
        self._folder.chmod(0o755)
        source, library, file = (self._folder / name for name in ("clock.c", "clock.so", "offset"))
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        super().__init__(file)
        self.environment = {"LD_PRELOAD": str(library), FILE: str(file)}

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
