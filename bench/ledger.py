"""Where handlers write their start time, and where the harness reads it.

A file of 64-bit slots mapped by all processes; job n owns slot n, so no lock is needed and a handler pays for one clock
reading and one store, the same for every contender. A slot that is zero has not started.
"""

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path

ENVIRONMENT_NAME = "BENCH_LEDGER"


class Ledger:
    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._slots = memoryview(self._map).cast("q")
        self._filled = 0

    @classmethod
    def create(cls, path: Path, slots: int) -> "Ledger":
        with path.open("wb") as file:
            file.truncate(8 * max(slots, 1))
        return cls(path)

    @classmethod
    def from_environment(cls) -> "Ledger":
        return cls(Path(os.environ[ENVIRONMENT_NAME]))

    @property
    def slots_of_all(self) -> memoryview:
        """The slots themselves, for a ledger that is written in another way: see bench/crowd.py."""
        return self._slots

    def stamp(self, number: int) -> None:
        self._slots[number] = time.monotonic_ns()

    def stamp_wall(self, number: int) -> None:
        """Due times are wall-clock times, so lateness is measured by that clock."""
        self._slots[number] = time.time_ns()

    def is_filled(self, upto: int) -> bool:
        """Whether slots 0 to upto - 1 have all started.

        Remembers how far it got, so that a whole wait looks at each slot once.
        """
        slots = self._slots
        while self._filled < upto and slots[self._filled]:
            self._filled += 1
        return self._filled >= upto

    def timestamps(self, start: int, stop: int) -> Sequence[int]:
        return self._slots[start:stop].tolist()

    def wait(self, upto: int, *, seconds: float, poll: float = 0.005) -> None:
        deadline = time.monotonic() + seconds
        while not self.is_filled(upto):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._filled} of {upto} jobs had started after {seconds:.0f} s")
            time.sleep(poll)
