"""Ticks for event streams, twice a second, once a second while nothing changes: one poll of the store for all viewers.

There is no background task. All viewers wait for the next tick, and the first of them polls for all; if it leaves meanwhile,
another one polls; without viewers nothing is polled. A slow poll is followed by a pause of 199 times its length, at most 10 s:
the dashboard spends about 0.5 % of its time in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime

import msgspec

from drumbeat.admin import Admin
from drumbeat.admin.health import HealthMonitor
from drumbeat.clock import jitter
from drumbeat.core.health import HealthLevel
from drumbeat.core.instance import Instance, LeaderInfo, Role
from drumbeat.core.job_query import JobCounts, JobFilter, QueueStats
from drumbeat.core.stats import Resolution
from drumbeat.durations import from_us, to_us
from drumbeat.errors import DrumbeatError
from drumbeat.redaction import mask_urls
from drumbeat.store.protocol import Store
from drumbeat.web.metrics import queue_lag
from drumbeat.web.rate_tracker import INTERVAL_US, QueueSample, Rates, RateTracker

log = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
"""A new viewer gets the last tick if it is no older than this; else the store is polled first."""
STORE_DOWN_DELAY = 1.0
IDLE_DELAY = 1.0
"""Between polls without changes."""
IDLE_SLEEP = 0.5
SLOW_INTERVAL = 2.5
"""Interval of polling leader, instances and dead letters."""


class QueueTick(QueueStats, frozen=True, kw_only=True):
    """A queue and its rates."""

    lag: float
    """Seconds for which its oldest ready job has been due."""
    incoming: float | None = msgspec.field(name="in")
    """Jobs per second that enter and leave it, over the same 10 s as `rates`; null: unknown."""
    outgoing: float | None = msgspec.field(name="out")


class InstancesTick(msgspec.Struct, frozen=True, kw_only=True):
    alive: int
    slots: int
    running: int


class HealthTick(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cluster is healthy; the reasons are in `/api/v1/status`."""

    level: HealthLevel
    text: str


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the cluster."""

    at: datetime
    """By the store's clock."""
    counts: JobCounts
    queues: list[QueueTick]
    instances: InstancesTick
    leader: LeaderInfo | None
    dead: int
    """Dead letters."""
    rates: Rates
    health: HealthTick
    store_ms: float
    """Duration of a cheap query, in milliseconds."""


class StoreDownTick(msgspec.Struct, frozen=True, kw_only=True):
    """The store is unavailable."""

    reason: str


class TickMessage(msgspec.Struct, frozen=True):
    """A numbered event, encoded once for all viewers."""

    number: int
    text: bytes
    at: float


class SlowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is polled less often."""

    asked: float
    now: int
    instances: InstancesTick
    leader: LeaderInfo | None
    dead: int
    health: HealthTick
    store_ms: float


class Ticker:
    def __init__(self, host: Admin, health: HealthMonitor) -> None:
        self._app = host
        self._health = health
        self._poll_lock = asyncio.Lock()
        self._last = TickMessage(0, b"", float("-inf"))
        self._due = float("-inf")
        self._waiting = 0
        self._rates = RateTracker()
        self._slow: SlowFacts | None = None
        self._seen: tuple[JobCounts, list[QueueStats]] | None = None
        self._is_idle = False
        self._is_store_down = False

    @property
    def poll_count(self) -> int:
        """Number of polls."""
        return self._last.number

    @property
    def is_watched(self) -> bool:
        """Whether a viewer waits for the next tick."""
        return self._waiting > 0

    def first_number(self) -> int:
        """The number after which a new viewer waits: it gets the last tick at once if that is fresh."""
        is_fresh = self._app.clock.monotonic() - self._last.at < FRESH_SECONDS
        return self._last.number - 1 if is_fresh else self._last.number

    async def wait_after(self, number: int) -> TickMessage | None:
        """The next message after that number; None: none within 0.5 s, so that the caller can check whether to stop."""
        clock = self._app.clock
        self._waiting += 1
        try:
            if self._last.number <= number and (wait := self._due - clock.monotonic()) > 0:
                await clock.sleep(min(wait, IDLE_SLEEP))
            if self._last.number <= number and clock.monotonic() >= self._due:
                async with self._poll_lock:
                    # Another viewer may have polled while this one waited for the lock.
                    if self._last.number <= number:
                        await self._poll()
        finally:
            self._waiting -= 1
        return self._last if self._last.number > number else None

    async def _poll(self) -> None:
        clock = self._app.clock
        began = clock.monotonic()
        try:
            tick: Tick | StoreDownTick = await self.build_tick()
            self._report_store_up()
            pause = max(self._rates.next_delay(clock.monotonic() - began), IDLE_DELAY if self._is_idle else 0.0)
        except DrumbeatError as error:
            self._report_store_down(error)
            tick, pause = StoreDownTick(reason=mask_urls(str(error))), jitter(STORE_DOWN_DELAY)
        ended = clock.monotonic()
        self._due = ended + pause
        kind = "tick" if isinstance(tick, Tick) else "store_down"
        number = self._last.number + 1
        self._last = TickMessage(
            number, b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), number, msgspec.json.encode(tick)), ended
        )

    async def build_tick(self) -> Tick:
        """Poll the store; the slow facts only every few seconds."""
        store = await self._app.store()
        asked = self._app.clock.monotonic()
        counts = await store.inspect.count_jobs(JobFilter())
        queues = await self._app.queues.list_stats()
        self._seen, before = (counts, queues), self._seen
        self._is_idle = self._seen == before
        if self._slow is None or asked - self._slow.asked >= SLOW_INTERVAL:
            self._slow = await self._poll_slow_facts(store, counts)
        slow = self._slow
        # The store's clock, as it was asked for a moment ago.
        now = slow.now + int((self._app.clock.monotonic() - slow.asked) * 1_000_000)
        moves = self._rates.measure(QueueSample(at=now, live={each.name: _live_jobs(each) for each in queues}))
        return Tick(
            at=from_us(now),
            counts=counts,
            queues=[_queue_tick(queue, now, *moves.queues[queue.name]) for queue in queues],
            instances=slow.instances,
            leader=slow.leader,
            dead=slow.dead,
            rates=moves.rates,
            health=slow.health,
            store_ms=slow.store_ms,
        )

    async def _poll_slow_facts(self, store: Store, counts: JobCounts) -> SlowFacts:
        clock = self._app.clock
        look = await self._health.check(store, heartbeat=self._app.settings.heartbeat)
        instances = look.snapshot.instances
        dead = await count_dead_letters(store, counts)
        asked = clock.monotonic()
        now = await store.inspect.now()
        if self._rates.needs_interval(now):
            end = self._rates.complete_before(now)
            rollups = await store.stats.read(Resolution.TEN_SECONDS, end - INTERVAL_US, end)
            began = [to_us(each.started_at) for each in instances if Role.WORKER in each.roles]
            self._rates.record_interval(now, rollups, working_since=min(began, default=None))
        return SlowFacts(
            asked=asked,
            now=now,
            instances=sum_instances(instances),
            leader=look.snapshot.leader,
            dead=dead,
            health=HealthTick(level=look.health.level, text=look.health.text),
            store_ms=look.snapshot.store_ms,
        )

    def _report_store_down(self, error: DrumbeatError) -> None:
        if not self._is_store_down:
            log.warning("store unavailable", extra={"reason": str(error)})
        self._is_store_down = True

    def _report_store_up(self) -> None:
        if self._is_store_down:
            log.info("store available again")
        self._is_store_down = False


async def count_dead_letters(store: Store, counts: JobCounts) -> int:
    """The number of dead letters. Discarded ones are in state dead, too, until they are pruned."""
    if not counts.dead:
        return 0
    return (await store.inspect.count_jobs(JobFilter(dead_letters=True))).dead


def _live_jobs(queue: QueueStats) -> int:
    return queue.ready + queue.scheduled + queue.running + queue.waiting


def _queue_tick(queue: QueueStats, now: int, come: float | None, gone: float | None) -> QueueTick:
    return QueueTick(**msgspec.structs.asdict(queue), lag=round(queue_lag(queue, now), 3), incoming=come, outgoing=gone)


def sum_instances(instances: Sequence[Instance]) -> InstancesTick:
    workers = [each for each in instances if Role.WORKER in each.roles]
    return InstancesTick(
        alive=len(instances),
        slots=sum(each.concurrency for each in workers),
        running=sum(each.running for each in instances),
    )
