"""Topology `lost file`: the SQLite file is taken away, with its log, while all use it.

Every worker must say in one line that the store is lost and exit with EXIT_NO_STORE; clients must be told StoreLost; nothing
may be acknowledged into a file that nobody can find, and nobody may make a new one in its place. Then the file comes back,
everything is started again, and no promise may be broken.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path

from drumbeat.processes.exit_codes import EXIT_NO_STORE
from tests.chaos.cluster import ChaosProcess
from tests.chaos.journal import Entry
from tests.chaos.stores import ChaosStore
from tests.proof.history import History
from tests.waiting import until_sync

LOSE = "lose file"
SUFFIXES = ("", "-wal", "-shm", "-lock")
LOST = b"the store is lost"
END_TIMEOUT = 45.0
"""Seconds in which everybody must have noticed: one of them may be stopped for one and a half leases."""


class LostFile(ChaosStore):
    fault_share = 0.5
    faults: tuple[str, ...] = (LOSE, LOSE, "lock file")

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(folder, dice)
        self._away = folder / "away"
        self._away.mkdir()
        self._spans: list[tuple[float, float]] = []
        self._violations: list[str] = []

    def go_away(self, how: str) -> None:
        if how != LOSE:
            super().go_away(how)
            return
        self.is_halting = True
        workers = [each for each in self.processes if each.is_serving and each.code is None]
        sizes = {each.name: each.log.stat().st_size for each in workers}
        for suffix in SUFFIXES:
            path = Path(f"{self._path}{suffix}")
            if path.exists():
                path.rename(self._away / path.name)
        self._spans.append((time.monotonic(), float("inf")))
        for each in workers:
            self._judge_worker(each, sizes[each.name])
        if self._path.exists():
            self._violations.append("O2: somebody made a new store in place of the lost one")

    def _judge_worker(self, worker: ChaosProcess, size: int) -> None:
        def is_over() -> bool:
            return worker.code is not None or (worker.is_supervisor and self._count_lines(worker, size) >= 2)

        try:
            until_sync(is_over, deadline=END_TIMEOUT, what=f"the end of {worker.node}")
        except AssertionError as error:
            self._violations.append(f"lost file: {error}")
        code, lines = worker.code, self._count_lines(worker, size)
        worker.kill()  # a supervisor starts its workers anew, and each makes a new store
        if not worker.is_supervisor and not worker.is_terminated and (code, lines) != (EXIT_NO_STORE, 1):
            self._violations.append(f"lost file: {worker.node} ended with {code}, and said so in {lines} lines")

    def _count_lines(self, worker: ChaosProcess, size: int) -> int:
        return worker.log.read_bytes()[size:].count(LOST)

    def come_back(self, how: str) -> None:
        if how != LOSE:
            super().come_back(how)
            return
        for each in self.processes:
            each.kill()
        start, _ = self._spans.pop()
        self._spans.append((start, time.monotonic()))
        for suffix in SUFFIXES:
            path = self._away / f"{self._path.name}{suffix}"
            if path.exists():
                path.rename(f"{self._path}{suffix}")
        self.is_halting = False

    def judge(self, entries: Sequence[Entry], history: History) -> list[str]:
        asked = {id: entry.at for entry in entries if entry.event == "asks" for id in entry.facts["ids"]}
        accepted = [
            f"lost file: {id} was acknowledged into a file that nobody can find"
            for entry in entries
            if entry.event == "acknowledged"
            for id in entry.facts["ids"]
            if any(asked[id] > start and entry.at < end for start, end in self._spans)
        ]
        refused = [entry.at for entry in entries if entry.event == "refused" and "StoreLost" in entry.facts["error"]]
        silent = [
            f"lost file: no client was told between {start:.3f} and {end:.3f}"
            for start, end in self._spans
            if not any(start < at < end for at in refused)
        ]
        return [*self._violations, *accepted, *silent]
