"""What viewers are told twice a second, and once while nothing moves: one look at the store, for all of them.

There is no task of its own. All viewers wait for the next moment, and the first of them looks for all; when it goes away
meanwhile, another does; when nobody is there, nobody looks. A look that takes long is followed by a pause of 199 times
as long, at most 10 s: the dashboard spends about a two-hundredth of its time in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime

import msgspec

from drumbeat.clock import jittered
from drumbeat.durations import from_us, to_us
from drumbeat.errors import DrumbeatError
from drumbeat.model.finding import Level
from drumbeat.model.instance import Instance, LeaderInfo, Role
from drumbeat.model.job import JobCounts, JobFilter, QueueStats
from drumbeat.model.stats import Grain
from drumbeat.nouns.health import HealthWatch
from drumbeat.redaction import mask_urls
from drumbeat.store.protocol import Store
from drumbeat.web.host import Host
from drumbeat.web.metrics import lag
from drumbeat.web.pacing import STRETCH_US, Pace, Rates, Sample

log = logging.getLogger(__name__)

FRESH = 1.0
"""A tick no older than this is told to somebody who comes; otherwise a new look is made first."""
AWAY_PAUSE = 1.0
CALM_PAUSE = 1.0
"""Between looks that find the same."""
NAP = 0.5
SLOWLY = 2.5
"""Leader, instances and dead letters are looked at once in so many seconds."""


class QueueTick(QueueStats, frozen=True, kw_only=True):
    """A queue as it is now, and how it moves."""

    lag: float
    """Seconds that its oldest ready job has been waiting."""
    come: float | None = msgspec.field(name="in")
    """Jobs that come in a second, and that leave it, over the same 10 s as `rates`; null: not known yet."""
    gone: float | None = msgspec.field(name="out")


class InstancesTick(msgspec.Struct, frozen=True, kw_only=True):
    alive: int
    slots: int
    running: int


class HealthTick(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cluster does its work; why not is in `/api/v1/status`."""

    level: Level
    text: str


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """The state of everything, in one record."""

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
    """How long the store took to say who leads: a question that costs it next to nothing."""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """The store is away."""

    reason: str


class Told(msgspec.Struct, frozen=True):
    """What all viewers are told, numbered; encoded once for all of them."""

    number: int
    text: bytes
    at: float


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at less often, because it changes seldom or nobody watches it so closely."""

    asked: float
    now: int
    instances: InstancesTick
    leader: LeaderInfo | None
    dead: int
    health: HealthTick
    store_ms: float


class Ticker:
    def __init__(self, host: Host, health: HealthWatch) -> None:
        self._host = host
        self._health = health
        self._turn = asyncio.Lock()
        self._last = Told(0, b"", float("-inf"))
        self._due = float("-inf")
        self._waiting = 0
        self._pace = Pace()
        self._slow: Slow | None = None
        self._seen: tuple[JobCounts, list[QueueStats]] | None = None
        self._is_calm = False
        self._is_away = False

    @property
    def looks(self) -> int:
        """How often it has looked at the store."""
        return self._last.number

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for the next tick."""
        return self._waiting > 0

    def begin(self) -> int:
        """The number after which somebody new should listen: it hears the last tick at once if that is fresh."""
        is_fresh = self._host.clock.monotonic() - self._last.at < FRESH
        return self._last.number - 1 if is_fresh else self._last.number

    async def after(self, number: int) -> Told | None:
        """What is told after that number, as soon as it is known; None: nothing for half a second, look after yourself."""
        clock = self._host.clock
        self._waiting += 1
        try:
            if self._last.number <= number and (wait := self._due - clock.monotonic()) > 0:
                await clock.sleep(min(wait, NAP))
            if self._last.number <= number and clock.monotonic() >= self._due:
                async with self._turn:
                    # Whoever had the turn before us has looked already.
                    if self._last.number <= number:
                        await self._look()
        finally:
            self._waiting -= 1
        return self._last if self._last.number > number else None

    async def _look(self) -> None:
        clock = self._host.clock
        began = clock.monotonic()
        try:
            tick: Tick | Gone = await self.gather()
            self._told_back()
            pause = max(self._pace.pause(clock.monotonic() - began), CALM_PAUSE if self._is_calm else 0.0)
        except DrumbeatError as error:
            self._told_away(error)
            tick, pause = Gone(reason=mask_urls(str(error))), jittered(AWAY_PAUSE)
        ended = clock.monotonic()
        self._due = ended + pause
        kind = "tick" if isinstance(tick, Tick) else "gone"
        number = self._last.number + 1
        self._last = Told(
            number, b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), number, msgspec.json.encode(tick)), ended
        )

    async def gather(self) -> Tick:
        """One look at what moves, and once in a while at what stays longer."""
        store = await self._host.store()
        asked = self._host.clock.monotonic()
        counts = await store.inspect.counts(JobFilter())
        queues = await self._host.queues.list()
        self._seen, before = (counts, queues), self._seen
        self._is_calm = self._seen == before
        if self._slow is None or asked - self._slow.asked >= SLOWLY:
            self._slow = await self._look_slowly(store, counts)
        slow = self._slow
        # The store's clock, as it was asked for a moment ago.
        now = slow.now + int((self._host.clock.monotonic() - slow.asked) * 1_000_000)
        moves = self._pace.moves(Sample(at=now, live={each.name: _live(each) for each in queues}))
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

    async def _look_slowly(self, store: Store, counts: JobCounts) -> Slow:
        clock = self._host.clock
        look = await self._health.look(store, heartbeat=self._host.settings.heartbeat)
        instances = look.signs.instances
        dead = await letters(store, counts)
        asked = clock.monotonic()
        now = await store.inspect.now()
        if self._pace.wants_stretch(now):
            end = self._pace.complete_before(now)
            rollups = await store.stats.read(Grain.TEN_SECONDS, end - STRETCH_US, end)
            began = [to_us(each.started_at) for each in instances if Role.WORKER in each.roles]
            self._pace.take_stretch(now, rollups, working_since=min(began, default=None))
        return Slow(
            asked=asked,
            now=now,
            instances=_sum(instances),
            leader=look.signs.leader,
            dead=dead,
            health=HealthTick(level=look.health.level, text=look.health.text),
            store_ms=look.signs.store_ms,
        )

    def _told_away(self, error: DrumbeatError) -> None:
        if not self._is_away:
            log.warning("dashboard has lost its store", extra={"reason": str(error)})
        self._is_away = True

    def _told_back(self) -> None:
        if self._is_away:
            log.info("dashboard has its store again")
        self._is_away = False


async def letters(store: Store, counts: JobCounts) -> int:
    """How many dead letters there are. Those that somebody has discarded are dead, too, until they are pruned."""
    if not counts.dead:
        return 0
    return (await store.inspect.counts(JobFilter(letters=True))).dead


def _live(queue: QueueStats) -> int:
    return queue.ready + queue.scheduled + queue.running + queue.waiting


def _queue_tick(queue: QueueStats, now: int, come: float | None, gone: float | None) -> QueueTick:
    return QueueTick(**msgspec.structs.asdict(queue), lag=round(lag(queue, now), 3), come=come, gone=gone)


def _sum(instances: Sequence[Instance]) -> InstancesTick:
    workers = [each for each in instances if Role.WORKER in each.roles]
    return InstancesTick(
        alive=len(instances),
        slots=sum(each.concurrency for each in workers),
        running=sum(each.running for each in instances),
    )
