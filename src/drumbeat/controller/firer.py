"""Fires what is due: looks, has it planned, writes it down in batches, and sleeps until the next moment.

The leader fires at once. Whoever does not lead looks only when the heartbeat says that a moment is overdue by more than a
second and nobody has fired it: the death of the leader costs about that much, with no election in between. Whoever has fired
something overdue stands in for the leader: it fires the next moments a tenth of a second after they are due, until it finds
that somebody else has fired one. So the first fire after a leader's death is a second late, not all until the next election.
Each firing names the revision and the cursor that it was planned for, and the store refuses it if either has moved: whoever
comes second changes nothing. What moments a rule has, and which of them are caught up, is decided in `schedules/`.
"""

import logging
import random
from collections.abc import Callable, Iterable, Sequence

from drumbeat.clock import Clock
from drumbeat.controller.elector import Elector
from drumbeat.core.instance import HeartbeatReply
from drumbeat.core.schedule import DueSchedules, FireRequest, FireResult, RuleKind, Schedule
from drumbeat.errors import ConfigError, StoreUnavailable
from drumbeat.events import Events, ScheduleFired, ScheduleSkipped
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.schedules.planner import plan
from drumbeat.service import OutageBackoff, Wakeup
from drumbeat.store.protocol import ScheduleStore

log = logging.getLogger(__name__)

MAX_BATCH = 200
OVERDUE_DELAY_US = 1_000_000
"""From then on it is anybody's to fire."""
MAX_SPREAD_US = 250_000
"""Followers come one after the other, so that the first can do it for all."""
STAND_IN_DELAY_US = 100_000
"""How late a stand-in fires: a leader that lives comes first, and the stand-in finds out that it is not needed."""
RETRY_DELAY_US = 50_000
MIN_SLEEP_SECONDS = 0.05
MAX_SLEEP_SECONDS = 3_600.0
"""Nobody sleeps longer. Each heartbeat brings the next moment, so there is nothing to look for meanwhile."""


class Firer:
    name = "firing"

    def __init__(
        self,
        schedules: ScheduleStore,
        elector: Elector,
        clock: Clock,
        events: Events,
        backoff: OutageBackoff,
        *,
        heartbeat: float,
        identity: Callable[[], InstanceId],
    ) -> None:
        self._schedules = schedules
        self._elector = elector
        self._clock = clock
        self._events = events
        self._backoff = backoff
        self._heartbeat = heartbeat
        self._identity = identity
        self._wakeup = Wakeup(clock)
        self._was_leader = False
        self._skew_us = 0
        self._next_fire_at: int | None = None
        self._unreadable: dict[str, int] = {}
        self._is_stand_in = False
        self.has_schedules = True
        """Whether the last look found any that is active: due, to come, or under way."""

    def on_heartbeat(self, pulse: HeartbeatReply) -> None:
        """What the heartbeat says of the next moment; we look again if it is sooner than expected, or if we lead anew."""
        self._sync_clock(pulse.now)
        leads = self._elector.is_leader
        was_due = self._next_fire_at is not None and self._next_fire_at <= pulse.now
        if was_due and (pulse.next_fire_at is None or pulse.next_fire_at > (self._next_fire_at or 0)):
            self._is_stand_in = False  # somebody else has fired it
        sooner = pulse.next_fire_at is not None and (
            self._next_fire_at is None or pulse.next_fire_at < self._next_fire_at
        )
        if sooner or not leads:
            self._next_fire_at = pulse.next_fire_at
        # It may have passed while we sleep, if the store's clock has stepped.
        passed = self._next_fire_at is not None and self._next_fire_at <= pulse.now
        if sooner or passed or leads != self._was_leader:
            self._wakeup.set()

    def wake(self) -> None:
        """Schedules have changed: look again."""
        self._wakeup.set()

    async def run(self) -> None:
        while True:
            self._wakeup.clear()  # before looking: what is heard meanwhile must not be lost
            try:
                pause = await self.fire_due()
            except StoreUnavailable as error:
                await self._backoff.wait(error)
            else:
                self._backoff.reset()
                await self._wakeup.wait(pause)

    async def fire_due(self) -> float:
        """Fire what is ours to fire. Returns for how many seconds to sleep."""
        self._was_leader = self._elector.is_leader
        if self._was_leader:
            self._is_stand_in = False
        return await (self._fire_all() if self._was_leader else self._fire_overdue())

    async def _fire_all(self) -> float:
        while True:
            limit = MAX_BATCH + len(self._unreadable)
            due = await self._load_due(limit)
            following, _ = await self._fire(due, due.schedules)
            if len(due.schedules) < limit:
                break
        self._next_fire_at = min(following, default=None)
        return self._seconds_until_next(0, self._max_sleep(due))

    async def _fire_overdue(self) -> float:
        """What somebody else should have fired, and has not."""
        if (
            pause := self._seconds_until_next(self._overdue_us(spread=True), MAX_SLEEP_SECONDS)
        ) > 0 and not self._is_stand_in:
            return pause
        due = await self._load_due(MAX_BATCH + len(self._unreadable))
        overdue_since = due.now - self._overdue_us()
        late = [each for each in due.schedules if each.next_at is not None and each.next_at <= overdue_since]
        following, fired = await self._fire(due, late)
        if late or (pause <= 0 and not due.schedules):  # in the second case somebody else has fired what was expected
            self._is_stand_in = fired > 0
        following += [each.next_at for each in due.schedules if each not in late and each.next_at is not None]
        self._next_fire_at = min(following, default=None)
        most = self._max_sleep(due) if self._is_stand_in else MAX_SLEEP_SECONDS
        return max(MIN_SLEEP_SECONDS, self._seconds_until_next(self._overdue_us(spread=True), most))

    def _overdue_us(self, *, spread: bool = False) -> int:
        """How late a moment must be to be ours, though we do not lead."""
        return (
            STAND_IN_DELAY_US
            if self._is_stand_in
            else OVERDUE_DELAY_US + (random.randrange(MAX_SPREAD_US) if spread else 0)
        )

    async def _load_due(self, limit: int) -> DueSchedules:
        due = await self._schedules.get_due(limit)
        self._sync_clock(due.now)
        self.has_schedules = bool(due.schedules) or due.next_at is not None or due.min_interval is not None
        return due

    async def _fire(self, due: DueSchedules, schedules: Sequence[Schedule]) -> tuple[list[int], int]:
        """Fire these. Returns the moments that follow, to be looked at, and how many schedules were fired by this call."""
        firings = [firing for each in schedules if (firing := self._plan(each, due.now)) is not None]
        following = [] if due.next_at is None else [due.next_at]
        done = 0
        for start in range(0, len(firings), MAX_BATCH):
            batch = firings[start : start + MAX_BATCH]
            for firing, fired in zip(batch, await self._schedules.fire(batch), strict=True):
                if not fired.applied:
                    following.append(
                        due.now + RETRY_DELAY_US
                    )  # somebody else has done it, or it was changed: look again
                    continue
                done += 1
                if firing.next_at is not None:
                    following.append(firing.next_at)
                self._emit_events(firing, fired, due.now)
        return following, done

    def _plan(self, schedule: Schedule, now: int) -> FireRequest | None:
        try:
            firing = plan(schedule, now, lambda _: new_job_id())
        except ConfigError as error:
            # Another version of this program may read it: it stays due, and is told once.
            if self._unreadable.get(schedule.name) != schedule.revision:
                self._unreadable[schedule.name] = schedule.revision
                facts = {"schedule": schedule.name, "reason": str(error)}
                log.error("a schedule in the store cannot be read: it is not fired here", extra=facts)
            return None
        self._unreadable.pop(schedule.name, None)
        return firing

    def _max_sleep(self, due: DueSchedules) -> float:
        """How long to sleep at most: an interval counted from the end of a run gets its moment when that run ends, and if it is
        so short that the next heartbeat comes too late with the news, we look for ourselves."""
        known = (each.definition for each in due.schedules if each.name not in self._unreadable)
        rules = [int(definition.rule) for definition in known if definition.kind is RuleKind.AFTER]
        shortest = min([*rules, *([] if due.min_interval is None else [due.min_interval])], default=None)
        if shortest is None or shortest / 1e6 > 2 * self._heartbeat:
            return MAX_SLEEP_SECONDS
        return max(MIN_SLEEP_SECONDS, shortest / 4e6)

    def _seconds_until_next(self, patience_us: int, most: float) -> float:
        if self._next_fire_at is None:
            return most
        store_now = int(self._clock.monotonic() * 1e6) + self._skew_us
        return min(most, (self._next_fire_at + patience_us - store_now) / 1e6)

    def _sync_clock(self, now: int) -> None:
        """Moments are the store's; we sleep by our own clock."""
        self._skew_us = now - int(self._clock.monotonic() * 1e6)

    def _emit_events(self, firing: FireRequest, fired: FireResult, now: int) -> None:
        me = self._identity()
        if fired.jobs and self._events.has_subscribers(ScheduleFired):
            enqueued = set(fired.jobs)
            for moment in firing.fires:
                if moment.job in enqueued:
                    late = max(0, now - moment.run_at) / 1e6
                    event = ScheduleFired(instance=me, schedule=firing.name, at=moment.at, job=moment.job, late=late)
                    self._events.emit(event)
        if self._events.has_subscribers(ScheduleSkipped):
            for skip in _skip_events(me, firing, fired):
                self._events.emit(skip)


def _skip_events(me: InstanceId, firing: FireRequest, fired: FireResult) -> Iterable[ScheduleSkipped]:
    for skip in firing.skipped:
        yield ScheduleSkipped(
            instance=me,
            schedule=firing.name,
            first=skip.first,
            last=skip.last,
            count=skip.count,
            reason=skip.reason,
        )
    enqueued = set(fired.jobs)
    left = [moment.at for moment in firing.fires if moment.job not in enqueued]
    if left and fired.skipped:
        yield ScheduleSkipped(
            instance=me, schedule=firing.name, first=left[0], last=left[-1], count=len(left), reason="overlap"
        )
