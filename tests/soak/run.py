"""One soak of one engine: start everything, restart the store now and then, sample, and judge whether all series are flat."""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import asyncpg
import msgspec
import redis

from drumbeat.clock import SYSTEM
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import JobId
from drumbeat.store.urls import migrate_store, open_store
from tests.chaos import journal
from tests.chaos.cluster import ChaosProcess, Command
from tests.proof.final_state import read_job
from tests.proof.history import JobRecord
from tests.servers.ports import free_port
from tests.soak import load, program
from tests.soak.dashboard_visitor import DashboardVisitor
from tests.soak.flatness import SeriesVerdict
from tests.soak.proof import check_jobs, summarise
from tests.soak.sampler import SeriesSet, measure_process
from tests.soak.stores import STORES
from tests.waiting import until

PROGRAM = "tests.soak.program:app"
MAX_SAMPLE_INTERVAL = 10.0
MIN_RESTART_INTERVAL = 60.0
RESTARTS = 10
DOWN_SECONDS = 1.5
"""How long a server is away."""
SETTLE_SECONDS = 30.0
"""From the last restart to the end."""
RECOVERY_TIMEOUT = 90.0
MAX_SHOWN = 50
PAGE = 1_000


class SoakPlan(msgspec.Struct, frozen=True, kw_only=True):
    engine: str
    seconds: float
    rate: float
    folder: Path
    plant: str = ""
    """A leak of `program.PLANTS`."""

    @property
    def sample_interval(self) -> float:
        return min(MAX_SAMPLE_INTERVAL, self.seconds / 80)

    @property
    def restart_interval(self) -> float:
        return max(MIN_RESTART_INTERVAL, min(300.0, self.seconds / RESTARTS))


class SoakVerdict(msgspec.Struct, kw_only=True):
    engine: str
    seconds: float
    plant: str
    passed: bool
    jobs: int
    restarts: int
    samples: int
    dashboard: dict[str, int]
    violations: list[str]
    not_flat: list[str]
    series: dict[str, SeriesVerdict]


def command_of(*arguments: str) -> Command:
    return [sys.executable, "-m", *arguments]


class SoakRun:
    def __init__(self, plan: SoakPlan) -> None:
        self.plan = plan
        self._store = STORES[plan.engine](plan.folder)
        self._journal = plan.folder / "journal"
        self._processes: dict[str, ChaosProcess] = {}
        self._taken = SeriesSet()
        self._stored = SeriesSet(absent_is_zero=True)
        self._samples = 0
        self._began = 0.0
        self._restarts: list[float] = []
        self._failures: list[str] = []

    async def run(self) -> SoakVerdict:
        os.environ[journal.FILE] = str(self._journal)
        port = free_port()
        visitor = DashboardVisitor(port)
        try:
            self._store.open()
            await migrate_store(self._store.url)
            commands = {
                "worker-1": command_of("drumbeat", "run", PROGRAM),
                "worker-2": command_of("drumbeat", "run", PROGRAM, "--processes", "2"),
                "dashboard": command_of("drumbeat", "dashboard", "--app", PROGRAM, "--port", str(port)),
                "load": command_of("tests.soak.load"),
            }
            for name, command in commands.items():
                self._processes[name] = ChaosProcess(name, command, self.plan.folder, self._environment())
            await until(lambda: b'"ended"' in self._read_beginning(), deadline=60, what="the first job")
            await self._soak(visitor)
            await self._finish()
            return await self._judge(visitor)
        finally:
            for process in self._processes.values():
                with suppress(Exception):
                    process.kill()
            self._store.close()

    def _environment(self) -> dict[str, str]:
        return {
            "DRUMBEAT_URL": self._store.url,
            "DRUMBEAT_RETENTION": str(program.RETENTION_SECONDS),
            "DRUMBEAT_AUDIT_RETENTION": str(program.RETENTION_SECONDS),
            "DRUMBEAT_DRAIN": "10",
            load.RATE: str(self.plan.rate),
            program.PLANT: self.plan.plant,
        }

    def _read_beginning(self) -> bytes:
        return self._journal.read_bytes()[:100_000] if self._journal.exists() else b""

    # While it runs

    async def _soak(self, visitor: DashboardVisitor) -> None:
        self._began = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.plan.seconds), asyncio.TaskGroup() as group:
                for work in (self._sample(), self._restart(), self._watch(), visitor.visit()):
                    group.create_task(work)

    async def _sample(self) -> None:
        with (self.plan.folder / "samples").open("ab") as log:
            while True:
                at = time.monotonic() - self._began
                taken = self._measure_processes()
                stored = await self._measure_store()
                self._taken.add(at, taken)
                if stored is not None:
                    self._stored.add(at, stored)
                    self._samples += 1
                log.write(msgspec.json.encode({"at": at, **taken, **(stored or {})}) + b"\n")
                log.flush()
                await SYSTEM.sleep(self.plan.sample_interval)

    def _measure_processes(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, pid, descendants in self._list_pids():
            with suppress(OSError):
                found |= {f"{name} {kind}": value for kind, value in measure_process(pid, descendants).items()}
        return found

    def _list_pids(self) -> list[tuple[str, int, list[int]]]:
        """Each process, and the oldest two children of the supervisor: those that it started first live longest."""
        found = []
        for name, process in self._processes.items():
            descendants = process.descendants()
            found.append((name, process.process.pid, descendants))
            if name == "worker-2":
                children = Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children")
                with suppress(OSError):
                    for number, pid in enumerate(map(int, children.read_text().split()), start=1):
                        found.append((f"worker-2.{number}", pid, []))
        return found

    async def _measure_store(self) -> dict[str, float] | None:
        """None: it is away."""
        pids = [pid for process in self._processes.values() for pid in (process.process.pid, *process.descendants())]
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, redis.RedisError, TimeoutError):
            return await self._store.measure(pids)
        return None

    async def _restart(self) -> None:
        last = time.monotonic() + self.plan.seconds - SETTLE_SECONDS
        while time.monotonic() + self.plan.restart_interval < last:
            await SYSTEM.sleep(self.plan.restart_interval)
            self._restarts.append(time.monotonic() - self._began)
            if self._store.has_server:
                await asyncio.to_thread(self._store.stop, len(self._restarts))
                await SYSTEM.sleep(DOWN_SECONDS)
                await asyncio.to_thread(self._store.start)
            elif len(self._restarts) % 2:
                self._processes["worker-1"].terminate()
            else:
                self._processes["worker-1"].signal(signal.SIGKILL)

    async def _watch(self) -> None:
        """As a service manager: what has ended is started again. Only SQLite's worker is told to end."""
        while True:
            await SYSTEM.sleep(0.2)
            for process in self._processes.values():
                if process.code is not None:
                    if self._store.has_server or process.name != "worker-1":
                        self._failures.append(f"{process.node} ended with {process.code}")
                    process.start()

    # At the end

    async def _finish(self) -> None:
        """Nothing new comes; what there is must finish."""
        self._processes["load"].kill()
        async with await open_store(self._store.url) as store:
            deadline = time.monotonic() + RECOVERY_TIMEOUT
            while time.monotonic() < deadline:
                queues = [each for each in await store.inspect.list_queues() if each.name != program.SCHEDULE_QUEUE]
                if not sum(each.ready + each.scheduled + each.running + each.waiting for each in queues):
                    break
                await SYSTEM.sleep(0.5)
        for name in ("worker-1", "worker-2", "dashboard"):
            self._processes[name].terminate()
        for name in ("worker-1", "worker-2", "dashboard"):
            process = self._processes[name]
            with suppress(Exception):
                await asyncio.to_thread(process.process.wait, 30)
            if process.code != 0:
                self._failures.append(f"D2: {process.node} ended with {process.code} after SIGTERM")

    async def _judge(self, visitor: DashboardVisitor) -> SoakVerdict:
        summary = summarise(journal.read(self._journal))
        violations = [*self._failures, *(f"client: {error}" for error in summary.mistakes)]
        violations += check_jobs(lambda: journal.read(self._journal), summary, await self._read_jobs())
        if not summary.heard:
            violations.append("no message of the room was heard")
        if not visitor.statuses["200"]:
            violations.append("the dashboard never answered")
        series = self._taken.judge_all(self._restarts) | self._stored.judge_all(self._restarts)
        not_flat = [f"{name} {verdict.reason}" for name, verdict in series.items() if not verdict.flat]
        return SoakVerdict(
            engine=self.plan.engine,
            seconds=self.plan.seconds,
            plant=self.plan.plant,
            passed=not violations and not not_flat,
            jobs=summary.acknowledged,
            restarts=len(self._restarts),
            samples=self._samples,
            dashboard=dict(visitor.statuses),
            violations=violations[:MAX_SHOWN],
            not_flat=not_flat,
            series=series,
        )

    async def _read_jobs(self) -> list[JobRecord]:
        jobs: list[JobRecord] = []
        before = None
        async with await open_store(self._store.url) as store:
            while True:
                page = await store.inspect.find_page(JobFilter(before=before, limit=PAGE))
                attempts = await store.inspect.get_attempts([JobId(job.id) for job in page.items])
                jobs += [read_job(job, attempts[JobId(job.id)]) for job in page.items]
                before = page.next
                if before is None:
                    return jobs
