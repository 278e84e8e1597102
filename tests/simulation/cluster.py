"""A simulated cluster: real clients, workers, controllers and locks on one seeded loop, and the history of what they did."""

import asyncio
import functools
import gc
import os
import random
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from drumbeat import Drumbeat, Limit, Snooze, current_job
from drumbeat.core.job import JobState
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import DrumbeatError, LockLost, StoreUnavailable
from drumbeat.ids import JobId, simulated_ids
from drumbeat.retry import Backoff
from drumbeat.store.protocol import Store
from drumbeat.store.sqlite import fsync_thread, locks, token_clock
from drumbeat.store.urls import open_store
from drumbeat.worker import Worker
from tests.proof.final_state import read_fire, read_job, read_signals
from tests.proof.history import (
    Broadcast,
    CancelAnswered,
    Disturbance,
    Ended,
    Enqueued,
    Heard,
    History,
    LockHeld,
    NodeLife,
    RateGrant,
    ResourceWrite,
    SchedulePolicy,
    Started,
    TaskLimits,
)
from tests.simulation.call_recorder import CallRecorder
from tests.simulation.faults import Network, NetworkedStore, NodeFault
from tests.simulation.graphs import NODE_TASKS, GraphClient, tend_letters
from tests.simulation.loop import Node, SimulatedClock, SimulatedLoop, spawn_on
from tests.simulation.observed_store import StoreObserver
from tests.simulation.plan_format import Plan, PlannedJob
from tests.simulation.sagas import run_parts, send_signals, tend_sagas

PROGRESS_SECONDS = 90.0
"""After the last fault everything must have finished within this virtual time."""
GRAPH_SECONDS = 60.0
"""And so much later where there are graphs, whose jobs run one after the other, and some of them in several lives."""
SAGA_SECONDS = 60.0
"""Likewise for sagas, whose runs follow each other."""
SHARED_MEMORY = Path("/dev/shm")
SCHEDULE = "tick"
LEADER_LEASE = 5.0
RATE = "rate"
RATE_WINDOW = 1.5
LIMITED: dict[str, dict[str, Any]] = {
    "limited": {"limits": [Limit(concurrency=2, per_group=True), Limit(concurrency=3)]},
    "rated": {"limits": [Limit(rate=2, per=timedelta(seconds=1), per_group=True)]},
    "ordered": {"order": True},
}
"""What tasks under limits declare."""
PROMISED_LIMITS = {
    "limited": TaskLimits(per_group=2, whole=3),
    "rated": TaskLimits(rate=2, per=1.0),
    "ordered": TaskLimits(per_group=1, is_ordered=True),
}
TASK_TIMEOUT = 60.0
JOB_TIMEOUT = 1.0


class SimulatedRun:
    """One seed. `run()` returns its history; `trace` has a line for each thing that happened."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = SimulatedLoop(plan.seed, in_order=plan.in_order)
        self.clock = SimulatedClock(self.loop)
        self.history = describe_plan(plan)
        self.observer = StoreObserver(self.history, self.loop.time)
        self.trace: list[str] = []
        self.is_over = False
        self._fault_dice = [random.Random(fault.seed) for fault in plan.call_faults]
        self.recorder = CallRecorder(self.loop, self.history, self.tell)
        self._connect_network()
        self._members: list[Member] = []
        self._runs = 0
        self._batches = 0
        self._resource_token = 0
        self._disk = Disk()
        self._has_power = True
        self.faults = 0

    def run(self) -> History:
        with _fresh_file() as path, _deterministic(self), self._disk.watching():
            self._disk.path = path
            try:
                self.loop.run_until_complete(self._main())
            finally:
                self._close()
        return self.history

    @property
    def url(self) -> str:
        return f"sqlite:///{self._disk.path}"

    def _connect_network(self) -> None:
        self._network_node = Node("network")
        lane = self.loop.lane(self._network_node, "main")
        self.network = Network(self.loop, self.clock, lane, self.plan.call_faults, self._fault_dice)

    def tell(self, text: str) -> None:
        if self.is_over:
            return
        self.trace.append(f"{self.loop.time():.6f} {text}")

    # The course of events, on the harness's own lane.

    async def _main(self) -> None:
        plan = self.plan
        self._members = [Member(self, number) for number in range(plan.workers)]
        for member in self._members:
            member.start()
        self._client = Member(self, plan.workers, is_client=True)
        for fault in plan.call_faults:
            node = None if fault.node is None else f"node{fault.node}"
            self.history.disturbances.append(
                Disturbance(kind=fault.kind, node=node, start=fault.start, end=fault.effect_ends, call=fault.call)
            )
        async with asyncio.TaskGroup() as group:
            for number, job in enumerate(plan.jobs):
                group.create_task(self._enqueue(number, job))
            for node_fault in plan.node_faults:
                group.create_task(self._disturb(node_fault))
        await self._wait_for_progress()
        self.faults = len(plan.node_faults) + self.network.applied
        for member in self._members:  # so that what is read belongs together
            self.loop.kill(member.node)
        self.history.ended_at = self.loop.time()
        self.recorder.finish()
        await self._read_end()

    async def _wait_for_progress(self) -> None:
        """Until nothing is live, or the time is over: then the checkers say what did not finish."""
        await self.clock.sleep(max(0.0, self.plan.faults_until - self.loop.time()))
        stepped_back = -sum(
            fault.seconds for fault in self.plan.node_faults if fault.kind == "clock" and fault.seconds < 0
        )
        has_graphs = any(job.kind == "graph" for job in self.plan.jobs)
        deadline = self.loop.time() + PROGRESS_SECONDS + stepped_back  # what was due is due that much later
        deadline += GRAPH_SECONDS if has_graphs else 0.0
        has_sagas = any(job.kind == "saga" for job in self.plan.jobs)
        deadline += SAGA_SECONDS if has_sagas else 0.0
        async with await open_store(self.url, clock=self.clock) as store:
            while self.loop.time() < deadline and await _count_live(store):
                await tend_letters(store)
                if has_sagas:
                    await tend_sagas(self, store)
                await self.clock.sleep(0.5)

    async def _enqueue(self, number: int, job: PlannedJob) -> None:
        await self.clock.sleep(job.at)
        client, node = self._client, self._client.node
        task = client.spawn(self._enqueue_there(client, number, job))
        while node.is_alive and not task.done():
            await asyncio.wait([task], timeout=1.0)

    async def _enqueue_there(self, client: "Member", number: int, job: PlannedJob) -> None:
        app = client.app
        if job.kind == "broadcast":
            await self._broadcast(app, number)
            return
        if job.kind == "graph":
            await GraphClient(self, client, number, job).play()
            return
        task = app.task_of(job.kind)
        options: dict[str, Any] = {"delay": job.delay} if job.delay else {}
        if job.kind == "unique":
            options |= {"key": job.key, "unique": True}
        if job.kind in LIMITED:
            options["group"] = job.key
        timeout = JOB_TIMEOUT if job.kind == "timed" else None
        if timeout is not None:
            options |= {"timeout": timeout}
        bound = [task.using(**options).bind(number * 10 + n, job.seconds, job.failures) for n in range(3)]
        bound = bound if job.kind == "batch" or job.kind in LIMITED else bound[:1]
        batch = None
        if len(bound) > 1:
            batch = self.next_batch()
        asked = self.loop.time()
        first = len(self.history.enqueued)
        self.history.enqueued += [
            Enqueued(
                id=str(new.id),
                at=asked,
                acknowledged=False,
                due=0.0 if job.kind == "unique" or self.has_clock_steps else asked + job.delay,
                batch=batch,
                unique_key=job.key if job.kind == "unique" else None,
                timeout=timeout,
            )
            for new in bound
        ]
        self.tell(f"enqueues {job.kind} {[str(new.id) for new in bound]}")
        try:
            handles = await app.enqueue_many(bound)
        except Exception as error:
            self.tell(f"enqueue {job.kind} failed: {error!r}")
            if not isinstance(error, StoreUnavailable):
                for n in range(first, first + len(bound)):
                    call = self.history.enqueued[n]
                    self.history.enqueued[n] = msgspec.structs.replace(call, refusal=repr(error))
            return
        for n, handle in enumerate(handles):
            call = self.history.enqueued[first + n]
            existing = None if str(handle.id) == call.id else str(handle.id)
            self.history.enqueued[first + n] = msgspec.structs.replace(
                call, acknowledged=True, existing=existing, answered_at=self.loop.time()
            )
            self.tell(f"enqueued {call.id} existing={existing}")
        if job.kind == "saga":
            await send_signals(self, client, JobId(handles[0].id), number * 10)
        if job.cancel_after is not None:
            await self.clock.sleep(job.cancel_after)
            with suppress(DrumbeatError):
                answer = await handles[0].cancel()
                self.history.cancels.append(
                    CancelAnswered(job=str(handles[0].id), at=self.loop.time(), answer=str(answer))
                )
                self.tell(f"cancel {handles[0].id}: {answer}")

    async def _broadcast(self, app: "SimulatedApp", number: int) -> None:
        asked = self.loop.time()
        with suppress(DrumbeatError):
            told = await app.hear.broadcast(number)
            self.history.broadcasts.append(Broadcast(message=number, at=asked, told=told))
            self.tell(f"message {number} was told to {told}")

    @property
    def has_clock_steps(self) -> bool:
        return any(fault.kind == "clock" for fault in self.plan.node_faults)

    async def _disturb(self, fault: NodeFault) -> None:
        await self.clock.sleep(fault.at)
        if fault.kind == "power" and not self._has_power:
            return  # nothing is left to cut
        self.tell(f"fault {fault.kind} node{fault.node} {fault.seconds:.3f}")
        member = self._members[fault.node]
        end = fault.at + (0.0 if fault.kind == "clock" else fault.seconds)
        concerned = None if fault.kind in ("clock", "power") else f"node{fault.node}"
        self.history.disturbances.append(Disturbance(kind=fault.kind, node=concerned, start=fault.at, end=end))
        if fault.kind == "clock":
            self.clock.offset_us += round(fault.seconds * 1e6)
            return
        if fault.kind == "power":
            await self._cut_power(fault.seconds)
            return
        node = member.node
        if fault.kind == "pause":
            self.loop.pause(node)
            await self.clock.sleep(fault.seconds)
            self.loop.resume(node)
            return
        if fault.kind == "kill":
            member.kill()
            await self.clock.sleep(fault.seconds)
        else:
            member.request_stop()
            await self.clock.sleep(fault.seconds)
            await member.wait_stopped()
        if member.node is node and self._has_power:  # else another fault has started it again, or will
            member.restart()

    async def _cut_power(self, seconds: float) -> None:
        everybody = [*self._members, self._client]
        for member in everybody:
            self.loop.resume(member.node)
            member.kill()
        self.loop.kill(self._network_node)
        self._disk.lose_unsynced()
        self._has_power = False
        await self.clock.sleep(seconds)
        self._has_power = True
        self._connect_network()
        for member in everybody:
            member.restart()

    def next_batch(self) -> int:
        self._batches += 1
        return self._batches

    # What handlers record.

    def next_run(self) -> int:
        self._runs += 1
        return self._runs

    def write_resource(self, token: int) -> None:
        accepted = token >= self._resource_token
        if accepted:
            self._resource_token = token
        self.history.writes.append(
            ResourceWrite(resource="resource", token=token, at=self.loop.time(), accepted=accepted)
        )

    # The end.

    async def _read_end(self) -> None:
        async with await open_store(self.url, clock=self.clock) as store:
            jobs: list[Any] = []
            before = None
            while True:
                page = await store.inspect.find_page(JobFilter(before=before, limit=1_000))
                jobs += page.items
                before = page.next
                if before is None:
                    break
            ids = [job.id for job in jobs]
            attempts = await store.inspect.get_attempts(ids)
            self.history.jobs = [read_job(job, attempts[JobId(job.id)]) for job in jobs]
            self.history.signals_read = await read_signals(store, self.history.jobs)
            fires = (await store.schedules.list_fires([SCHEDULE], limit=1_000))[SCHEDULE]
        self.history.fires = [read_fire(fire) for fire in fires]
        if fires and self.plan.every is not None:
            first, last = min(fire.at for fire in fires), max(fire.last for fire in fires)
            period = round(self.plan.every * 1e6)
            self.history.expected_fires[SCHEDULE] = [at / 1e6 for at in range(first, last + 1, period)]
        for record in self.history.jobs:
            self.tell(f"end {record}")
        for fire in self.history.fires:
            self.tell(f"end {fire}")

    def _close(self) -> None:
        """End without running what the nodes would still do: as if the machine were switched off."""
        self.is_over = True
        self._members.clear()
        before = sys.unraisablehook
        sys.unraisablehook = lambda _: None
        try:
            self.loop.dispose()
            gc.collect()
        finally:
            sys.unraisablehook = before


def describe_plan(plan: Plan) -> History:
    """A history in which nothing has happened yet."""
    history = History(
        grace=plan.dead_after + 2 * plan.heartbeat,
        dead_after=plan.dead_after,
        timeouts={"timed": TASK_TIMEOUT},
        heartbeat=plan.heartbeat,
        leader_lease=LEADER_LEASE,
        max_displaced=0,  # SQLite's claims come one after the other
        limits=PROMISED_LIMITS,
        interruptible=[*dict.fromkeys([*(job.kind for job in plan.jobs), *NODE_TASKS])],
    )
    if not any(fault.kind == "clock" for fault in plan.node_faults):
        history.epoch = SimulatedClock.START_US / 1e6
    if plan.every is not None:
        history.policies[SCHEDULE] = SchedulePolicy(period=plan.every)
    return history


async def _count_live(store: Any) -> int:
    """How many jobs are not at their end, without those of the schedule, which never ends."""
    pages = [
        await store.inspect.find_page(JobFilter(state=state, limit=200))
        for state in (JobState.PENDING, JobState.RUNNING)
    ]
    return sum(job.schedule is None for page in pages for job in page.items)


class SimulatedApp(Drumbeat):
    hear: Any
    """The room of this app."""

    def task_of(self, kind: str) -> Any:
        return self._internals.registry[kind]


class Member:
    """A process of the cluster, started and started again."""

    def __init__(self, run: SimulatedRun, number: int, *, is_client: bool = False) -> None:
        self.run = run
        self.number = number
        self._generation = 0
        self._worker: Worker | None = None
        self._task: asyncio.Task[Any] | None = None
        self._life: NodeLife | None = None
        self.is_client = is_client
        self._new_node()

    def _new_node(self) -> None:
        self.node = Node("client" if self.is_client else f"node{self.number}")
        self.lane = self.run.loop.lane(self.node, "main")
        self.app = self._build_app()
        self.run.loop.bury(self.app)

    @property
    def label(self) -> str:
        """Another one after each start."""
        return f"{self.node.name}.{self._generation}"

    def spawn(self, coroutine: Any) -> "asyncio.Task[Any]":
        return spawn_on(self.run.loop, self.lane, coroutine)

    def start(self) -> None:
        run = self.run
        self._life = NodeLife(node=self.node.name, start=run.loop.time(), concurrency=run.plan.concurrency)
        run.history.lives.append(self._life)
        self._task = self.spawn(self._work())

    def kill(self) -> None:
        self._end_life("killed")
        self.run.loop.kill(self.node)

    def _end_life(self, ending: Literal["killed", "stopped", "left"]) -> None:
        life = self._life
        if life is not None and life.end is None and not self.run.is_over:
            life.end, life.ending = self.run.loop.time(), ending

    def restart(self) -> None:
        self._generation += 1
        self.run.tell(f"{self.node.name} starts again")
        self._new_node()
        if not self.is_client:
            self.start()

    def request_stop(self) -> None:
        if self._worker is not None and self._life is not None and self.node.is_alive:
            if self._life.stop_asked_at is None:
                self._life.stop_asked_at = self.run.loop.time()
            self._worker.request_stop()

    async def wait_stopped(self) -> None:
        """Until the process that was asked to stop has ended. One that takes too long is killed, as a service manager does."""
        task, node, life = self._task, self.node, self._life
        if task is None or not node.is_alive or life is None or life.stop_asked_at is None:
            return  # another fault has ended it
        await asyncio.wait([task], timeout=60.0)
        if not task.done():
            now = self.run.loop.time()
            self.run.history.disturbances.append(Disturbance(kind="kill", node=node.name, start=now, end=now))
            if self.node is node:
                self._end_life("killed")
            self.run.loop.kill(node)

    async def _work(self) -> None:
        internals = self.app._internals
        self._worker = Worker(internals, internals.settings)
        try:
            await self._worker.run()
        except BaseException as error:
            self.run.tell(f"{self.node.name} ended by {error!r}")
            self._end_life("left")
            raise
        self._end_life("left" if self._life is None or self._life.stop_asked_at is None else "stopped")
        self.run.tell(f"{self.node.name} has stopped")

    def _build_app(self) -> SimulatedApp:
        run, plan = self.run, self.run.plan
        app = SimulatedApp(
            run.url,
            clock=run.clock,
            name="sim",
            heartbeat=plan.heartbeat,
            dead_after=plan.dead_after,
            concurrency=plan.concurrency,
            drain=3.0,
            poll=1.0,
            lock_lease=plan.lock_lease,
            lock_renew=plan.lock_lease / 4,
            leader_lease=LEADER_LEASE,
            batch=plan.batch,
            role="controller" if plan.controller == self.number else "both",
        )
        internals = app._internals

        def wrap(store: Store) -> Store:
            observed = cast("Store", run.observer.observe(store, self.node.name))
            return cast("Store", NetworkedStore(observed, run.network, self.number, self.label, run.recorder))

        internals.client.wrap_store = wrap
        register_tasks(app, self)
        return app


def register_tasks(app: SimulatedApp, member: Member) -> None:
    run = member.run

    async def perform(number: int, seconds: float, failures: int) -> str:
        job = current_job()
        this = run.next_run()
        run.history.started.append(
            Started(run=this, job=str(job.id), token=job.token, node=member.node.name, at=run.loop.time())
        )
        run.tell(f"{member.node.name} starts {job.task} {job.id} token={job.token} run={this}")
        result: str | None = None
        try:
            await run.clock.sleep(seconds * 0.25 if job.task == "locked" else seconds)
            if job.attempt <= failures and job.task != "saga":
                raise RuntimeError("fails on purpose")
            if job.task == "locked":
                await take_start()
                await locked(seconds)
            if job.task == "saga":
                await run_parts(run, job, this, number, failures)
            if job.task == "snoozer" and job.token and run.history.started[-1].at < number % 5:
                raise Snooze("1s")
            result = f"{number}-{this}"
        finally:
            if not run.is_over:
                run.history.ended.append(
                    Ended(run=this, at=run.loop.time(), result=None if result is None else f'"{result}"')
                )
            run.tell(f"{member.node.name} ends run={this} result={result}")
        return result

    async def take_start() -> None:
        async with app.lock(RATE, limit=1, per=RATE_WINDOW) as start:
            if not run.has_clock_steps:
                run.history.rates.append(RateGrant(name=RATE, limit=1, per=RATE_WINDOW, at=start.granted_at / 1e6))
            run.tell(f"{member.node.name} may start with {start.token}")

    async def locked(seconds: float) -> None:
        asked = run.loop.time()
        async with app.lock("resource") as lock:
            run.tell(f"{member.node.name} holds the lock with {lock.token}")
            index = len(run.history.locks)
            run.history.locks.append(
                LockHeld(
                    lock="resource",
                    token=lock.token,
                    node=member.node.name,
                    asked_at=asked,
                    entered_at=run.loop.time(),
                    left_at=None,
                    is_exact=True,
                )
            )

            def record(**times: float) -> None:
                if not run.is_over:
                    run.history.locks[index] = msgspec.structs.replace(run.history.locks[index], **times)

            lock.lost.add_callback(lambda: record(lost_at=run.loop.time()))
            try:
                run.write_resource(lock.token)
                await run.clock.sleep(seconds * 0.75)
                run.write_resource(lock.token)
            finally:
                record(left_at=run.loop.time())
                run.tell(f"{member.node.name} leaves the lock with {lock.token}")

    def add(kind: str, **options: Any) -> None:
        async def handler(number: int, seconds: float, failures: int) -> str:
            try:
                return await perform(number, seconds, failures)
            except LockLost:
                raise RuntimeError("the lock was lost") from None

        app.task(name=kind, retries=50, backoff=Backoff(base=0.2, cap=1), **options)(handler)

    async def timed(number: int, seconds: float, failures: int) -> str:
        return await perform(number, seconds if current_job().attempt == 1 else 0.0, failures)

    kinds = {
        job.kind: None for job in run.plan.jobs
    }  # a task takes a millisecond to register, and a seed has few kinds
    for kind in kinds:
        if kind not in ("doomed", "broadcast", "timed", "graph"):
            add(kind, **LIMITED.get(kind, {}))
    if "timed" in kinds:
        app.task(name="timed", retries=50, backoff=Backoff(base=0.2, cap=1), timeout=TASK_TIMEOUT)(timed)

    async def hear(message: int) -> None:
        run.history.heard.append(Heard(message=message, node=member.label, at=run.loop.time()))
        run.tell(f"{member.label} hears {message}")

    if "broadcast" in kinds:
        app.hear = app.room(hear)

    async def mortal(number: int, seconds: float, failures: int) -> str:
        return await perform(number, seconds, 1_000 if current_job().claimed.replays < failures else 0)

    if "graph" in kinds:
        add("node")
        app.task(name="mortal", retries=0)(mortal)

    async def doomed(number: int, seconds: float, failures: int) -> str:
        await perform(number, seconds, 1_000)
        return ""

    if "doomed" in kinds:
        app.task(name="doomed", retries=1, backoff=Backoff(base=0.2, cap=1))(doomed)

    if run.plan.every is not None:

        async def tick() -> str:
            job = current_job()
            this = run.next_run()
            run.history.started.append(
                Started(run=this, job=str(job.id), token=job.token, node=member.node.name, at=run.loop.time())
            )
            result = f"tick-{this}"
            run.history.ended.append(Ended(run=this, at=run.loop.time(), result=f'"{result}"'))
            return result

        app.every(timedelta(seconds=run.plan.every), grid=True, name=SCHEDULE, retries=50)(tick)


READERS_OF_BOOT: Any = (locks, token_clock)


class Disk:
    """The file of the store, and how much of its log would survive a power cut."""

    def __init__(self) -> None:
        self.path = Path()
        self._synced = 0
        self._cuts = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        real = fsync_thread.fsync_file

        def sync(file: int) -> None:
            real(file)
            self._synced = os.fstat(file).st_size

        fsync_thread.fsync_file = sync  # type: ignore[assignment]
        boots = [module.boot_id for module in READERS_OF_BOOT]
        for module in READERS_OF_BOOT:
            module.boot_id = lambda: f"boot {self._cuts}"
        try:
            yield
        finally:
            fsync_thread.fsync_file = real
            for module, boot_id in zip(READERS_OF_BOOT, boots, strict=True):
                module.boot_id = boot_id

    def lose_unsynced(self) -> None:
        """Go on with a copy, as the machine would find it: the open connections of dead nodes hold the old one."""
        self._cuts += 1
        copy = self.path.with_name(f"after-cut-{self._cuts}.db")
        copy.write_bytes(self.path.read_bytes())
        copy.chmod(0o600)
        log = Path(f"{self.path}-wal")
        if log.exists():
            Path(f"{copy}-wal").write_bytes(log.read_bytes()[: self._synced])
        self.path = copy


@contextmanager
def _fresh_file() -> Iterator[Path]:
    """A database with its tables; on tmpfs where there is one."""
    folder = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="drumbeat-sim-", dir=folder) as name:
        path = Path(name) / "jobs.db"
        path.write_bytes(_template())
        path.chmod(0o600)
        yield path


@functools.cache
def _template() -> bytes:
    """Made once: making the tables for each seed would take longer than the seed."""

    async def make(path: Path) -> None:
        async with await open_store(f"sqlite:///{path}"):
            pass

    with tempfile.TemporaryDirectory(prefix="drumbeat-sim-") as name:
        path = Path(name) / "jobs.db"
        asyncio.run(make(path))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DELETE FROM drumbeat_meta WHERE name LIKE 'token%'")  # they are of the clock of this machine
        return path.read_bytes()


@contextmanager
def _deterministic(run: SimulatedRun) -> Iterator[None]:
    """Ids, chance and the order of everything depend on the seed alone."""
    dice = random.Random(f"chance {run.plan.seed}")
    state = random.getstate()
    random.seed(f"global {run.plan.seed}")
    was_enabled = gc.isenabled()
    gc.disable()  # else the collector would run code of dead nodes at times of its own
    try:
        with simulated_ids(lambda: run.clock.now_us() * 1_000, dice.randbytes):
            yield
    finally:
        random.setstate(state)
        if was_enabled:
            gc.enable()
