"""The ledger of several worker processes: who has had a job, when all may begin, and how often each job ran.

Each process counts in a column of its own, so that two that run the same job at the same time are both seen. A handler
that comes before the gate is open waits there: the processes start one after the other, but begin together.

    slot 0: the gate | one slot for each process: it has had a job | one column for each process: runs of each job
"""

import asyncio
import os
import time
from pathlib import Path

from bench.ledger import ENVIRONMENT_NAME, Ledger

NUMBER_NAME = "BENCH_PROCESS"
"""Which process this is, from 0."""
COLUMN_NAME = "BENCH_COLUMN"
"""The slot where its column begins."""
NAP_SECONDS = 0.01
GATE_POLL = 0.005


class Crowd(Ledger):
    def __init__(self, path: Path, *, processes: int, jobs: int) -> None:
        super().__init__(path)
        self._processes = processes
        self._jobs = jobs

    @staticmethod
    def slots(processes: int, jobs: int) -> int:
        return 1 + processes + processes * jobs

    @staticmethod
    def environment(process: int, processes: int, jobs: int) -> dict[str, str]:
        return {NUMBER_NAME: str(process), COLUMN_NAME: str(1 + processes + process * jobs)}

    def count_arrived(self) -> int:
        return sum(slot != 0 for slot in self._slots[1 : 1 + self._processes])

    def open_gate(self) -> None:
        self._slots[0] = 1

    def is_filled(self, upto: int) -> bool:
        """Whether each of these jobs has run in some process. Remembers how far it got."""
        slots, first, jobs = self._slots, 1 + self._processes, self._jobs
        while self._filled < upto:
            if not any(slots[first + process * jobs + self._filled] for process in range(self._processes)):
                return False
            self._filled += 1
        return True

    def count_runs(self) -> int:
        return sum(self._slots[1 + self._processes :].tolist())


class Member:
    """The handler's side. A job that runs twice at exactly the same time, in two threads of one process, may count once."""

    def __init__(self) -> None:
        ledger = Ledger(Path(os.environ[ENVIRONMENT_NAME]))
        self._slots = ledger.slots_of_all
        self._process = int(os.environ.get(NUMBER_NAME, 0))
        self._column = int(os.environ.get(COLUMN_NAME, 0))

    async def nap(self, number: int) -> None:
        self._arrive(number)
        while not self._slots[0]:  # noqa: ASYNC110 - another process opens it, so there is no event to wait for
            await asyncio.sleep(GATE_POLL)
        await asyncio.sleep(NAP_SECONDS)

    def nap_in_thread(self, number: int) -> None:
        self._arrive(number)
        while not self._slots[0]:
            time.sleep(GATE_POLL)
        time.sleep(NAP_SECONDS)

    def _arrive(self, number: int) -> None:
        self._slots[self._column + number] += 1
        self._slots[1 + self._process] = 1
