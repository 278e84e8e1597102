"""A wall clock that the nemesis steps for all processes at once, through eight bytes of shared memory.

It is the clock of a SQLite store: all its processes live on one host. Servers have their own clocks, which nobody steps here.
"""

import mmap
import os
import struct
from pathlib import Path

from drumbeat.clock import SystemClock

FILE = "CHAOS_CLOCK"


class SharedClock(SystemClock):
    def __init__(self, path: Path | None) -> None:
        self._shared: mmap.mmap | None = None
        if path is not None:
            if not path.exists():
                path.write_bytes(bytes(8))
            with path.open("r+b") as file:
                self._shared = mmap.mmap(file.fileno(), 8)

    @classmethod
    def of_environment(cls) -> "SharedClock":
        path = os.environ.get(FILE)
        return cls(Path(path) if path else None)

    def now_us(self) -> int:
        offset = 0 if self._shared is None else struct.unpack_from("<q", self._shared)[0]
        return super().now_us() + int(offset)

    def step(self, seconds: float) -> None:
        assert self._shared is not None
        (offset,) = struct.unpack_from("<q", self._shared)
        struct.pack_into("<q", self._shared, 0, offset + round(seconds * 1e6))
