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

    def go_away(self, how: str) -> None:
        if how != LOSE:
            super().go_away(how)
            return
        self.is_halting = True
        workers = [each for each in self.processes if each.is_serving and each.code is None]
        sizes = {each.name: each.log.stat().st_size for each in workers}
        self._folder.rename(self._away)
        self._spans.append((time.monotonic(), float("inf")))
        for each in workers:
            self._judge_worker(each, sizes[each.name])
        if self._folder.exists():
            self._violations.append("lost file: somebody made a new store in place of the lost one")

    def _judge_worker(self, worker: ChaosProcess, size: int) -> None:
        """A supervisor starts its workers anew, which then find no folder: its end is not judged, what they say is."""
        with suppress(AssertionError):
            until_sync(lambda: worker.code is not None, deadline=END_TIMEOUT, what=f"the end of {worker.node}")
        code, text = worker.code, worker.log.read_bytes()[size:]
        worker.kill()
        if b"drumbeat starts" in text or worker.is_terminated or worker.is_supervisor:
            return  # it had not opened the file yet, or was leaving
        if code != EXIT_NO_STORE or text.count(LOST) != 1:
            self._violations.append(f"lost file: {worker.node} ended with {code}, and said {text[-2000:].decode()!r}")

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
        refused = [entry.at for entry in entries if entry.event == "refused" and "StoreLost" in entry.facts["error"]]
        silent = [
            f"lost file: no client was told between {start:.3f} and {end:.3f}"
            for start, end in self._spans
            if not any(start < at < end for at in refused)
        ]
        return [*self._violations, *accepted, *silent]
