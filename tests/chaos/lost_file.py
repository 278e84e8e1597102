"""Topology `lost-file`: the SQLite file is taken away, with its log and its folder, while all use it.

Every worker must say in one line that the store is lost and exit with EXIT_NO_STORE; clients must be told StoreLost; nothing
may be acknowledged into a file that nobody can find, and nobody may make a new one in its place. Then the file comes back,
everything is started again, and no promise may be broken.
"""

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from drumbeat.processes.exit_codes import EXIT_NO_STORE
from tests.chaos.cluster import ChaosProcess
from tests.chaos.journal import Entry
from tests.chaos.stores import ChaosStore
from tests.proof.history import History
from tests.waiting import until_sync

LOSE = "lose file"
LOST = b"the store is lost"
LED = b"the controllers have a new leader"
END_TIMEOUT = 30.0
"""Seconds in which a worker must have noticed: it may be stopped for one and a half leases."""


class LostFile(ChaosStore):
    fault_share = 0.5
    faults: tuple[str, ...] = (LOSE, LOSE, "lock file")

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(folder, dice)
        # With its folder: else whoever is just starting makes a new file, as any first start does.
        self._folder, self._away = folder / "store", folder / "away"
        self._folder.mkdir()
        self._path = self._folder / "jobs.db"
        self.direct_url = self.url = f"sqlite:///{self._path}"
        self._spans: list[tuple[float, float]] = []
        self._violations: list[str] = []
        self._judged = 0

    def go_away(self, how: str) -> None:
        if how != LOSE:
            super().go_away(how)
            return
        self.is_halting = True
        running = [each for each in self.processes if each.code is None]
        # One that has seen a leader has opened the file; a supervisor starts its workers anew, and they find no folder.
        judged = [
            each for each in running if not each.is_supervisor and LED in each.read_log() and not each.is_terminated
        ]
        self._folder.rename(self._away)
        self._spans.append((time.monotonic(), float("inf")))
        for each in judged:
            self._judge_worker(each)
        if self._folder.exists():
            self._violations.append("lost file: somebody made a new store in place of the lost one")

    def _judge_worker(self, worker: ChaosProcess) -> None:
        with suppress(AssertionError):
            until_sync(lambda: worker.code is not None, deadline=END_TIMEOUT, what=f"the end of {worker.node}")
        text = worker.read_log()
        self._judged += 1
        if worker.code != EXIT_NO_STORE or text.count(LOST) != 1:
            said = text[-2000:].decode(errors="replace")
            self._violations.append(f"lost file: {worker.node} ended with {worker.code}, and said {said!r}")

    def come_back(self, how: str) -> None:
        if how != LOSE:
            super().come_back(how)
            return
        for each in self.processes:
            each.kill()
        start, _ = self._spans.pop()
        self._spans.append((start, time.monotonic()))
        self._away.rename(self._folder)
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
        if self._spans and not any(
            entry.event == "refused" and "StoreLost" in entry.facts["error"] for entry in entries
        ):
            self._violations.append("lost file: no client was told")
        if self._spans and not self._judged:
            self._violations.append("lost file: no worker was running when the file was lost")
        return [*self._violations, *accepted]
