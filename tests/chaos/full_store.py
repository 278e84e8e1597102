"""Topology `full`: a store without room, for a while (O2). SQLite and PostgreSQL lie on a small disk of their own that a fault
fills; Redis reaches its maxmemory.

SQLite and Redis must refuse what is enqueued meanwhile, and let jobs end. PostgreSQL may take what fits into pages that it has;
it may even end, and is then started again, as by a service manager, when there is room.
"""

import random
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.chaos.journal import Entry
from tests.chaos.stores import ChaosPostgres, ChaosRedis, ChaosStore
from tests.proof.history import History, JobRecord
from tests.servers import disks
from tests.servers.disk_postgres import DiskPostgres
from tests.servers.disks import SmallDisk
from tests.servers.postgres import PostgresServer

MEGABYTES = 1024
NEARLY_FULL = 32 << 20
"""Bytes that `nearly full` leaves: less than SQLite's reserve."""
NOTICE_SECONDS = 1.2
"""SQLite looks at its disk once a second."""
MAX_REPORT_SECONDS = 10.0
"""How long after its end a run may be told to the store."""


class FullSpan(msgspec.Struct):
    how: str
    start: float
    end: float = 0.0


class FullSpans:
    """When the store was full, and what must have been so meanwhile."""

    def __init__(self) -> None:
        self.spans: list[FullSpan] = []

    def begin(self, how: str) -> None:
        self.spans.append(FullSpan(how, time.monotonic()))

    def end(self) -> None:
        self.spans[-1].end = time.monotonic()

    def judge(self, entries: Sequence[Entry], *, notice: float) -> list[str]:
        asked = {id: entry.at for entry in entries if entry.event == "asks" for id in entry.facts["ids"]}
        violations = []
        for entry in entries:
            if entry.event == "acknowledged":
                for id, existing in zip(entry.facts["ids"], entry.facts["existing"], strict=True):
                    if id == existing and any(
                        asked[id] > span.start + notice and entry.at < span.end for span in self.spans
                    ):
                        violations.append(f"O2: {id} was accepted by a full store")
        ended = [entry.at for entry in entries if entry.event == "ended"]
        if self.spans and not any(span.start + 0.2 < at < span.end for at in ended for span in self.spans):
            violations.append("O2: no job has ended while the store was full")
        return violations

    def excuse_missing_records(self, history: History) -> None:
        """A full Redis keeps no history of jobs that succeed or are cancelled, nor of attempts (docs/redis.md)."""
        ends = {end.run: end for end in history.ended}
        known = {(job.id, attempt.token) for job in history.jobs for attempt in job.attempts}
        unrecorded = [
            run
            for run in history.started
            if (run.job, run.token) not in known
            and self._touches(run.at, ends[run.run].at if run.run in ends else float("inf"))
        ]
        finished = {run.job for run in unrecorded if run.run in ends and ends[run.run].result is not None}
        finished |= {cancel.job for cancel in history.cancels if self._touches(cancel.at, cancel.at)}
        finished |= {sent.job for sent in history.deliveries if sent.taken and self._touches(sent.at, sent.at)}
        gone = finished - {job.id for job in history.jobs}
        gone |= cancelled_with_parents(history, gone) if self.spans else set()
        history.enqueued = [
            msgspec.structs.replace(call, acknowledged=False, batch=None) if call.id in gone else call
            for call in history.enqueued
        ]
        history.fires = [
            msgspec.structs.replace(fire, job=None) if fire.job in gone else fire for fire in history.fires
        ]
        excused, jobs = {run.run for run in unrecorded}, {run.job for run in unrecorded}
        history.started = [run for run in history.started if run.run not in excused]
        history.jobs = [charge_as_recorded(job) if job.id in jobs else job for job in history.jobs]

    def _touches(self, start: float, end: float) -> bool:
        """Whether something that was told to the store soon after `end` may have met a full one."""
        return any(start <= span.end and end >= span.start - MAX_REPORT_SECONDS for span in self.spans)


def cancelled_with_parents(history: History, gone: set[str]) -> set[str]:
    """Children that never ran and are not there, and a parent of which has failed."""
    known = {job.id for job in history.jobs} | {run.job for run in history.started}
    failed = {job.id for job in history.jobs if job.replays or job.state in ("dead", "cancelled", "expired")} | gone
    found: set[str] = set()
    while True:
        more = {
            edge.child
            for edge in history.depends
            if edge.if_fails != "run" and edge.parent in failed | found and edge.child not in known
        }
        if more <= found:
            return found
        found |= more


def charge_as_recorded(job: JobRecord) -> JobRecord:
    outcomes = Counter(attempt.outcome for attempt in job.attempts)
    return msgspec.structs.replace(job, failures=outcomes["retry"] + outcomes["dead"], crashes=outcomes["crashed"])


class FullSqlite(ChaosStore):
    fault_share = 0.5
    faults: tuple[str, ...] = ("nearly full", "nearly full", "fill disk", "lock file")
    isolation = ("--mount",)

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(folder, dice)
        self._kept = folder / "disk.kept"
        self._disk = SmallDisk(folder / "disk", MEGABYTES)
        self._path = self._disk.folder / "jobs.db"
        self.direct_url = self.url = f"sqlite:///{self._path}"
        self._spans = FullSpans()

    @classmethod
    def find_obstacle(cls) -> str | None:
        return disks.find_obstacle()

    async def open(self) -> None:
        self._disk.mount()
        self.stack.callback(self._close_disk)

    def _close_disk(self) -> None:
        """The folder of a failed run is kept whole."""
        self._disk.empty()
        shutil.copytree(self._disk.folder, self._kept, dirs_exist_ok=True)
        self._disk.unmount()

    def go_away(self, how: str) -> None:
        if how == "lock file":
            super().go_away(how)
            return
        self._disk.fill(but=NEARLY_FULL if how == "nearly full" else 0)
        self._spans.begin(how)

    def come_back(self, how: str) -> None:
        if how == "lock file":
            super().come_back(how)
            return
        self._spans.end()
        self._disk.empty()

    def judge(self, entries: Sequence[Entry], history: History) -> list[str]:
        return self._spans.judge(entries, notice=NOTICE_SECONDS)


class FullRedis(ChaosRedis):
    fault_share = 0.5
    faults: tuple[str, ...] = ("fill memory", "fill memory", "cut", "restart")

    async def open(self) -> None:
        await super().open()
        self._spans = FullSpans()
        self.server.ask("SET", "padding", b"x" * 2_000_000)

    def go_away(self, how: str) -> None:
        if how == "fill memory":
            self.server.ask("CONFIG", "SET", "maxmemory", "1mb")
            self._spans.begin(how)
        else:
            super().go_away(how)

    def come_back(self, how: str) -> None:
        if how == "fill memory":
            self._spans.end()
            self.server.ask("CONFIG", "SET", "maxmemory", "0")
        else:
            super().come_back(how)

    def judge(self, entries: Sequence[Entry], history: History) -> list[str]:
        self._spans.excuse_missing_records(history)
        return self._spans.judge(entries, notice=0.0)


class FullPostgres(ChaosPostgres):
    fault_share = 0.5
    faults: tuple[str, ...] = ("fill disk", "fill disk", "cut", "restart")
    isolation = ("--mount",)

    @classmethod
    def find_obstacle(cls) -> str | None:
        return disks.find_obstacle()

    def make_server(self) -> PostgresServer:
        return DiskPostgres(SmallDisk, MEGABYTES)

    @property
    def _disk(self) -> SmallDisk:
        assert isinstance(self.server, DiskPostgres) and isinstance(self.server.disk, SmallDisk)
        return self.server.disk

    def go_away(self, how: str) -> None:
        if how == "fill disk":
            self._disk.fill()
        else:
            super().go_away(how)

    def come_back(self, how: str) -> None:
        if how == "fill disk":
            self._disk.empty()
            assert isinstance(self.server, DiskPostgres)
            self.server.revive()
        else:
            super().come_back(how)
