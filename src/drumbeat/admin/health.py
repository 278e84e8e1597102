"""Is the cluster healthy? One answer for the dashboard, `/api/v1/status`, the event stream, `app.system.health()`, `drumbeat
doctor` and `drumbeat top`.

`HealthMonitor` takes the snapshot, and repeats the expensive queries at most every 10 s; `health_rules.py` judges it.
`doctor.py` lists everything that may be wrong, with what to do about it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from drumbeat.clock import Clock
from drumbeat.core.failure_rate import DAY_WINDOW_US, PAST_WINDOW_US, RECENT_WINDOW_US
from drumbeat.core.instance import Instance, InstanceState
from drumbeat.core.job_query import TaskStats
from drumbeat.core.schedule import Fire
from drumbeat.core.stats import Resolution, Rollup
from drumbeat.durations import to_us
from drumbeat.store.protocol import Store

from .health_rules import Health, HealthSnapshot, is_missed, judge_health

RECENT_INTERVAL = 10.0
"""Workers write their counts every 10 s: reading more often gives nothing new."""
PAST_INTERVAL = 300.0
"""Seconds for which the hours of the last 8 days are cached."""
MAX_SCHEDULES = 1_000
FIRES_READ = 3
"""Of each schedule: the newest records tell whether it has just missed."""


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """A health, and the snapshot that it was judged from."""

    health: Health
    snapshot: HealthSnapshot


class RecentWork(NamedTuple):
    """The part of a snapshot that is cached."""

    died: list[Instance]
    minutes: list[Rollup]
    tasks: list[TaskStats]
    missed: list[Fire]


class HealthMonitor:
    """Judges a store again and again, and caches the expensive queries in between."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: tuple[float, RecentWork] | None = None
        self._hours: tuple[float, list[Rollup]] | None = None

    async def check(self, store: Store, *, heartbeat: float) -> HealthReport:
        """Raises what the store raises: callers report a store that is unavailable."""
        inspect = store.inspect
        asked = self._clock.monotonic()
        leader = await inspect.get_leader()
        store_ms = (self._clock.monotonic() - asked) * 1_000
        now = await inspect.now()
        recent = await self._read_recent(store, now)
        snapshot = HealthSnapshot(
            now=now,
            instances=await inspect.list_instances(),
            leader=leader,
            queues=await inspect.list_queues(),
            due=(await store.schedules.get_due(1)).schedules,
            died=[each for each in recent.died if each.ended_at and now - to_us(each.ended_at) <= RECENT_WINDOW_US],
            minutes=recent.minutes,
            hours=await self._read_hours(store, now),
            tasks=recent.tasks,
            missed=[each for each in recent.missed if is_missed(each, now)],
            store_ms=round(store_ms, 3),
            heartbeat=heartbeat,
        )
        return HealthReport(health=judge_health(snapshot), snapshot=snapshot)

    async def _read_recent(self, store: Store, now: int) -> RecentWork:
        asked = self._clock.monotonic()
        if self._recent is None or asked - self._recent[0] >= RECENT_INTERVAL:
            instances = await store.inspect.list_instances(all=True)
            recent = RecentWork(
                died=[each for each in instances if each.state is InstanceState.DEAD],
                minutes=await read_recent(store, now),
                tasks=await store.inspect.list_tasks(),
                missed=await _read_missed(store, now),
            )
            self._recent = (asked, recent)
        return self._recent[1]

    async def _read_hours(self, store: Store, now: int) -> list[Rollup]:
        asked = self._clock.monotonic()
        if self._hours is None or asked - self._hours[0] >= PAST_INTERVAL:
            self._hours = (asked, await read_past(store, now))
        return self._hours[1]


async def read_recent(store: Store, now: int) -> list[Rollup]:
    """The roll-ups of the last 10 minutes, for each queue and task."""
    return await store.stats.read(Resolution.MINUTE, now - RECENT_WINDOW_US, now + Resolution.MINUTE)


async def read_past(store: Store, now: int) -> list[Rollup]:
    """The hours of the last 8 days, for each queue and task: a day, and the week before it."""
    since = now - DAY_WINDOW_US - PAST_WINDOW_US
    return await store.stats.read(Resolution.HOUR, since, now + Resolution.HOUR)


async def _read_missed(store: Store, now: int) -> list[Fire]:
    names = [each.name for each in await store.schedules.list_page(limit=MAX_SCHEDULES)]
    fires = await store.schedules.list_fires(names, limit=FIRES_READ) if names else {}
    return [fire for found in fires.values() for fire in found if is_missed(fire, now)]
