"""One run of chaos: start everything, disturb it, let it recover, and judge what is left."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from drumbeat.clock import SYSTEM
from drumbeat.errors import DrumbeatError, StoreUnavailable
from drumbeat.store.protocol import Store
from drumbeat.store.urls import migrate_store, open_store
from tests.chaos import clients, cluster, journal, program, shared_clock
from tests.chaos.cluster import ChaosProcess
from tests.chaos.history_reader import build_history, read_store
from tests.chaos.nemesis import STEPS, PlannedFault, choose, draw_faults, draw_single_faults
from tests.chaos.receiver import Receiver
from tests.chaos.recovery import measure_recovery
from tests.chaos.sagas import tend_sagas
from tests.chaos.shared_clock import SharedClock
from tests.chaos.stalls import StallWatch
from tests.chaos.stores import NETWORK
from tests.chaos.timelines import read_timelines
from tests.chaos.topologies import PLAIN, find_store
from tests.proof.checkers import check
from tests.proof.deliveries import check_deliveries
from tests.proof.history import Disturbance
from tests.simulation.graphs import tend_letters
from tests.waiting import until

MAX_VIOLATIONS_SHOWN = 50
START_SECONDS = 120.0
STOP_SECONDS = 90.0
RECOVERY_SECONDS = 120.0
"""How long is waited at most. They are for what never comes: a busy machine must not use them up."""


class ChaosPlan(msgspec.Struct, frozen=True, kw_only=True):
    engine: str
    seconds: float
    seed: int
    faults: int
    folder: Path
    lease: float
    """`dead_after` of the workers; the other times follow from it."""
    rate: float
    """Jobs in a second that each bulk producer enqueues."""
    is_small: bool
    is_single: bool = False
    """One fault at a time, to measure recoveries."""
    topology: str = PLAIN
    min_jobs: int = 0
    """The load goes on until so many were acknowledged, also after the last fault."""
    is_timed: bool = True
    """Judge promises that name seconds. On a machine that does other things meanwhile they say nothing about Drumbeat."""


class ChaosVerdict(msgspec.Struct, kw_only=True):
    engine: str
    topology: str
    seed: int
    seconds: float
    passed: bool
    jobs: int
    states: dict[str, int]
    runs: int
    fires: int
    lock_grants: int
    deliveries: int
    load: dict[str, int]
    """Events of the journal: who was there, and did what he is there for."""
    faults: dict[str, int]
    violations: list[str]
    violation_count: int
    recovery: dict[str, Any]
    machine_load: float
    """The highest load average of the machine during the run: far above its cores, the times say little."""
    folder: str | None
    """Where everything is kept: journal, logs, the server's files. None: removed, because nothing was wrong."""


class ChaosRun:
    def __init__(self, plan: ChaosPlan) -> None:
        self.plan = plan
        self._dice = random.Random(f"proxy {plan.seed}")
        self._store = find_store(plan.topology, plan.engine)(plan.folder, self._dice)
        self._processes: list[ChaosProcess] = []
        self._held_down: set[ChaosProcess] = set()
        self._disturbances: list[Disturbance] = []
        self._counts: Counter[str] = Counter()
        self._tokens: dict[str, int] = {}
        self._failures: list[str] = []
        self._machine_load = 0.0
        self._clock_file = plan.folder / "clock"
        self._clock = SharedClock(self._clock_file if plan.engine == "sqlite" else None)
        self._store_turn = asyncio.Lock()
        self._receiver = Receiver(random.Random(f"receiver {plan.seed}"))

    async def run(self) -> ChaosVerdict:
        journal_file = self.plan.folder / "journal"
        os.environ[journal.FILE] = str(journal_file)
        journal.write("clock", wall=self._clock.now_us() / 1e6)
        stalls = StallWatch(lambda start, end: self._disturb("stall", None, start, end))
        has_passed = False
        try:
            await self._store.open()
            await migrate_store(self._store.direct_url)
            fence = await asyncio.start_server(self._serve_fence, self._store.fence_address, 0)
            await self._receiver.start(self._store.fence_address)
            environment = self._environment(fence.sockets[0].getsockname()[1])
            names = cluster.SMALL if self.plan.is_small else cluster.WHOLE
            self._processes = [
                ChaosProcess(name, self._store.place(name, command), self.plan.folder, environment)
                for name, command in names.items()
            ]
            self._store.processes = self._processes
            async with fence:
                watch = asyncio.get_running_loop().create_task(self._keep_running())
                with stalls:
                    await until(self._has_begun, deadline=START_SECONDS, what="the first jobs")
                    await self._inject()
                    await until(self._has_load, deadline=RECOVERY_SECONDS, what=f"{self.plan.min_jobs} jobs")
                    await self._recover()
                    watch.cancel()
                    await self._stop()
            verdict = await self._judge(journal_file)
            has_passed = verdict.passed
            return verdict
        finally:
            for process in self._processes:
                with suppress(Exception):
                    process.kill()
            self._receiver.close()
            if not has_passed:
                with suppress(Exception):
                    self._store.save(self.plan.folder / "server")
            self._store.close()

    def _environment(self, fence: int) -> dict[str, str]:
        lease = self.plan.lease
        shared = {shared_clock.FILE: str(self._clock_file)} if self.plan.engine == "sqlite" else {}
        return shared | {
            "DRUMBEAT_URL": self._store.url,
            "DRUMBEAT_DEAD_AFTER": str(lease),
            "DRUMBEAT_HEARTBEAT": str(lease / 10),
            "DRUMBEAT_LEADER_LEASE": str(lease / 2),
            "DRUMBEAT_LOCK_LEASE": str(max(1.0, lease / 3)),
            "DRUMBEAT_LOCK_RENEW": str(max(1.0, lease / 3) / 4),
            "DRUMBEAT_POLL": str(lease / 5),
            "DRUMBEAT_DRAIN": "5",
            "DRUMBEAT_CONCURRENCY": "6",  # each crash suspect starts a Python: 2 cores start few at once
            clients.RATE: str(self.plan.rate),
            program.FENCE: f"{self._store.fence_address}:{fence}",
            program.RECEIVER: self._receiver.url,
        }

    async def _has_begun(self) -> bool:
        return b'"ended"' in (self.plan.folder / "journal").read_bytes()

    async def _has_load(self) -> bool:
        if not self.plan.min_jobs:
            return True
        answers = [each for each in journal.read(self.plan.folder / "journal") if each.event == "acknowledged"]
        return sum(len(answer.facts["ids"]) for answer in answers) >= self.plan.min_jobs

    async def _serve_fence(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The resource: it takes no write with an older token than it has seen."""
        with suppress(OSError, ValueError):
            name, text = (await reader.readline()).decode().split()
            token = int(text)
            accepted = token >= self._tokens.get(name, 0)
            if accepted:
                self._tokens[name] = token
            journal.write("fenced", resource=name, token=token, accepted=accepted)
            writer.write(b"1\n" if accepted else b"0\n")
            await writer.drain()
        writer.close()

    async def _keep_running(self) -> None:
        """As a service manager: what has ended is started again."""
        while True:
            await SYSTEM.sleep(0.1)
            self._machine_load = max(self._machine_load, os.getloadavg()[0])
            for process in self._processes:
                if process.code is not None and process not in self._held_down and not self._store.is_halting:
                    process.start()

    # Faults

    async def _inject(self) -> None:
        plan, began = self.plan, time.monotonic()
        store = self._store
        if plan.is_single:
            faults = draw_single_faults(plan.seed, plan.seconds, store.faults, plan.lease)
        else:
            faults = draw_faults(
                plan.seed, plan.seconds, plan.faults, store.faults, plan.lease, share=store.fault_share
            )
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await SYSTEM.sleep(max(0.0, began + fault.at - time.monotonic()))
                group.create_task(self._apply(fault))

    async def _apply(self, fault: PlannedFault) -> None:
        start = time.monotonic()
        nodes: set[str | None] = {None}
        if fault.kind in self._store.faults:
            async with self._store_turn:
                start, before = time.monotonic(), {process.node for process in self._processes}
                await self._disturb_store(fault)
                concerned = self._store.find_concerned(fault.kind)
            if concerned is not None:
                after = {process.node for process in self._processes}
                nodes = {node for node in before | after if node.rpartition(".")[0] in concerned}
        else:
            node = await self._disturb_process(fault)
            if node is None:
                return
            nodes = {node}
        self._counts[fault.kind] += 1
        for each in nodes:
            self._disturb(fault.kind, each, start, time.monotonic())

    def _disturb(self, kind: str, node: str | None, start: float, end: float) -> None:
        self._disturbances.append(Disturbance(kind=kind, node=node, start=start, end=end))
        journal.write("fault", kind=kind, node=node, start=start)

    async def _disturb_store(self, fault: PlannedFault) -> None:
        if fault.kind in STEPS:
            journal.write("stepped", seconds=fault.seconds)
            (self._store.server_clock or self._clock).step(fault.seconds)
        elif fault.kind in NETWORK:
            proxy = self._store.proxy
            assert proxy is not None
            if fault.kind == "cut":
                proxy.cut(fault.pick)
                return
            proxy.mode = fault.kind  # type: ignore[assignment]
            if fault.kind == "refuse":
                proxy.cut()
            await SYSTEM.sleep(fault.seconds)
            proxy.mode = "open"
            if fault.kind == "swallow":
                proxy.cut()  # a stream with a gap is no stream
        else:
            await asyncio.to_thread(self._store.go_away, fault.kind)
            await SYSTEM.sleep(fault.seconds)
            await asyncio.to_thread(self._store.come_back, fault.kind)
            if fault.kind == "restart":
                journal.write("store is back")

    async def _disturb_process(self, fault: PlannedFault) -> str | None:
        running = [each for each in self._processes if each.code is None and not each.is_stopped]
        serving = [each for each in running if each.is_serving]
        if self._store.is_halting:
            return None
        if fault.kind == "kill leader":
            return await self._kill_leader()
        if fault.kind == "kill child":
            parents = [each for each in serving if each.descendants()]
            process = choose(parents, fault.pick)
            if process is None:
                return None
            pid = choose(process.descendants(), fault.pick * 7 % 1)
            self._kill(process, [pid], leader=False)
            return str(process.node)
        process = choose(self._targets(fault.kind, running, serving), fault.pick)
        if process is None:
            return None
        node = str(process.node)
        if fault.kind == "kill worker" and process.name.startswith("supervised"):
            self._kill(process, [choose(process.workers(), fault.pick * 7 % 1)], leader=False)
        elif fault.kind in ("kill", "kill worker"):
            self._kill(process, [process.process.pid, *process.descendants()], leader=False)
        elif fault.kind == "terminate":
            process.terminate()
        else:
            process.signal(signal.SIGSTOP)
            await SYSTEM.sleep(fault.seconds)
            process.signal(signal.SIGCONT)
        return node

    def _targets(self, kind: str, running: list[ChaosProcess], serving: list[ChaosProcess]) -> list[ChaosProcess]:
        if kind == "kill worker":
            return [each for each in serving if each.workers()]
        return serving if kind == "terminate" else running

    def _kill(self, process: ChaosProcess, pids: list[int], *, leader: bool) -> None:
        what = process.describe(pids[0])
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        journal.write("killed", pids=pids, leader=leader, what=what, wall=self._clock.now_us() / 1e6)

    async def _kill_leader(self) -> str | None:
        with suppress(DrumbeatError, TimeoutError):
            async with asyncio.timeout(2), await self._open_store() as store:
                leader = await store.inspect.get_leader()
                known = {each.id: each.pid for each in await store.inspect.list_instances()}
                if leader is None or leader.instance not in known:
                    return None
                pid = known[leader.instance]
            for process in self._processes:
                if process.process.pid == pid:
                    self._kill(process, [pid, *process.descendants()], leader=True)
                    return process.node
                if pid in process.descendants():
                    self._kill(process, [pid, *cluster._descendants(pid)], leader=True)
                    return process.node
        return None

    async def _open_store(self) -> Store:
        return await open_store(self._store.direct_url, clock=self._clock)

    # After the faults

    async def _recover(self) -> None:
        """Nothing new comes; what there is must finish."""
        for process in self._processes:
            if process.is_stopped:
                process.signal(signal.SIGCONT)
            if not process.is_serving:
                self._held_down.add(process)
                process.kill()
                # It may have held a lock: not counted as a fault, but what follows from it is no violation.
                self._disturb("end of clients", process.node, time.monotonic(), time.monotonic())
        deadline = time.monotonic() + RECOVERY_SECONDS + 3 * self.plan.lease
        async with await self._open_store() as store:
            while await self._has_live(store) and time.monotonic() < deadline:
                with suppress(StoreUnavailable):
                    await tend_letters(store)
                    await tend_sagas(store)
                await SYSTEM.sleep(0.2)

    async def _has_live(self, store: Store) -> bool:
        try:
            return await self._count_live(store) > 0
        except StoreUnavailable:  # it has just come back, or is slow
            return True

    async def _count_live(self, store: Store) -> int:
        queues = [queue for queue in await store.inspect.list_queues() if queue.name != "clockwork"]
        return sum(queue.ready + queue.scheduled + queue.running + queue.waiting for queue in queues)

    async def _stop(self) -> None:
        serving = [process for process in self._processes if process.is_serving]
        for process in serving:
            process.terminate()
        for process in serving:
            with suppress(Exception):
                await asyncio.to_thread(process.process.wait, STOP_SECONDS)
            if process.code not in (0, -signal.SIGTERM):  # the second: one that had not begun
                self._failures.append(f"D2: {process.node} ended with {process.code} after SIGTERM")

    async def _judge(self, journal_file: Path) -> ChaosVerdict:
        entries = list(journal.read(journal_file))
        self._disturbances += [
            Disturbance(kind="poison", node=entry.node, start=entry.at, end=entry.at)
            for entry in entries
            if entry.event == "started" and entry.facts["task"] in program.POISONOUS
        ]
        self._disturbances += [
            Disturbance(kind="stall", node=entry.node, start=entry.facts["start"], end=entry.at)
            for entry in entries
            if entry.event == "stalled"
        ]
        history = build_history(entries, self._disturbances, grace=2 * self.plan.lease + 5)
        if not self.plan.is_timed:
            history.timeouts, history.interruptible = {}, ()
        async with await self._open_store() as store:
            await read_store(store, history)
            timelines = await read_timelines(store, entries)
        of_store = self._store.judge(entries, history)
        if self.plan.topology != PLAIN:
            # What they say is not promised where a store forgets, or its clock is stepped.
            history.ticket_calls.clear()
            history.depends, history.steps, history.signals = [], [], []
        violations = [
            *self._failures,
            *of_store,
            *check(history),
            *check_deliveries(history),
            *(f"client: {entry.facts['error']}" for entry in entries if entry.event == "mistake"),
        ]
        if violations:
            (self.plan.folder / "history.json").write_bytes(msgspec.json.encode(history))
        return ChaosVerdict(
            engine=self.plan.engine,
            topology=self.plan.topology,
            seed=self.plan.seed,
            seconds=self.plan.seconds,
            passed=not violations,
            jobs=len(history.jobs),
            states=dict(Counter(job.state for job in history.jobs)),
            runs=len(history.started),
            fires=len(history.fires),
            lock_grants=len(history.locks),
            deliveries=sum(delivery.taken for delivery in history.deliveries),
            load=count_load(entries),
            faults=dict(sorted(self._counts.items())),
            violations=violations[:MAX_VIOLATIONS_SHOWN],
            violation_count=len(violations),
            recovery=measure_recovery(entries, timelines),
            machine_load=round(self._machine_load, 1),
            folder=str(self.plan.folder),
        )


def count_load(entries: Sequence[journal.Entry]) -> dict[str, int]:
    counts = Counter(entry.event for entry in entries)
    asks = [entry.facts for entry in entries if entry.event == "asks"]
    counts["unique asks"] = sum(facts["key"] is not None for facts in asks)
    counts["batches"] = sum(facts["batch"] is not None for facts in asks)
    counts["delayed asks"] = sum(facts["delay"] > 0 for facts in asks)
    return dict(sorted(counts.items()))
