"""Fire schedules that are due: load them, plan their fires, write these in batches, sleep until the next fire time.

The leader fires at once. A follower acts only when the heartbeat reports a fire time that is more than a second overdue: so
the death of the leader delays a fire by about that much, without waiting for an election. A follower that has fired something
overdue stands in for the leader: it fires at the next fire times a tenth of a second late, until another instance has fired
one. So only the first fire after a leader's death is a second late, not all until the next election.

Each fire request names the revision and the cursor that it was planned for, and the store refuses it if either has changed:
of two instances that fire the same, the second changes nothing. Fire times and catch-up are decided in `schedules/`.
"""

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from drumbeat.controller.part import ControllerPart
from drumbeat.core.instance import HeartbeatReply
from drumbeat.core.overlap import OVERLAP_REASON
from drumbeat.core.schedule import DueSchedules, FireRequest, FireResult, RuleKind, Schedule, SkippedRange
from drumbeat.errors import ConfigError, StoreUnavailable
from drumbeat.events import Events, ScheduleFired, ScheduleSkipped
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.schedules.planner import plan
from drumbeat.service import Wakeup

log = logging.getLogger(__name__)

MAX_BATCH = 200
OVERDUE_DELAY_US = 1_000_000
"""From then on any instance may fire it."""
MAX_SPREAD_US = 250_000
"""Spreads followers, so that the first can fire for all."""
STAND_IN_DELAY_US = 100_000
"""How late a stand-in fires: a living leader fires first, and the stand-in notices that it is not needed."""
RETRY_DELAY_US = 50_000
MIN_SLEEP_SECONDS = 0.05
MAX_SLEEP_SECONDS = 3_600.0
"""Long, because each heartbeat brings the next fire time."""


@dataclass(eq=False, repr=False)
class Firer(ControllerPart):
    events: Events
    heartbeat: float
    identity: Callable[[], InstanceId]
    name = "firer"

    def __post_init__(self) -> None:
        self._wakeup = Wakeup(self.clock)
        self._was_leader = False
        self._skew_us = 0
        self._next_fire_at: int | None = None
        self._unreadable: dict[str, int] = {}
        self._is_stand_in = False
        self.has_schedules = True
        """Whether there was any active schedule at the last load."""

    def on_heartbeat(self, reply: HeartbeatReply) -> None:
        """Take over the next fire time; wake if it is sooner than expected, or if the leadership has changed."""
        self._sync_clock(reply.now)
        leads = self.elector.is_leader
        was_due = self._next_fire_at is not None and self._next_fire_at <= reply.now
        if was_due and (reply.next_fire_at is None or reply.next_fire_at > (self._next_fire_at or 0)):
            self._is_stand_in = False  # another instance has fired it
        sooner = reply.next_fire_at is not None and (
            self._next_fire_at is None or reply.next_fire_at < self._next_fire_at
        )
        if sooner or not leads:
            self._next_fire_at = reply.next_fire_at
        # It may pass while we sleep, if the store's clock has stepped.
        passed = self._next_fire_at is not None and self._next_fire_at <= reply.now
        if sooner or passed or leads != self._was_leader:
            self._wakeup.set()

    def wake(self) -> None:
        """Schedules have changed: load them again."""
        self._wakeup.set()

    async def run(self) -> None:
        while True:
            self._wakeup.clear()  # before loading, so that no wake-up meanwhile is lost
            try:
                delay = await self.fire_due()
            except StoreUnavailable as error:
                await self.backoff.wait(error)
            else:
                self.backoff.reset()
                await self._wakeup.wait(delay)

    async def fire_due(self) -> float:
        """Fire what is due and ours to fire. Returns the seconds to sleep."""
        self._was_leader = self.elector.is_leader
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
        """Fire what the leader should have fired and has not."""
        delay = self._seconds_until_next(self._overdue_us(spread=True), MAX_SLEEP_SECONDS)
        if delay > 0 and not self._is_stand_in:
            return delay
        due = await self._load_due(MAX_BATCH + len(self._unreadable))
        overdue_since = due.now - self._overdue_us()
        late = [each for each in due.schedules if each.next_at is not None and each.next_at <= overdue_since]
        following, fired = await self._fire(due, late)
        if late or (delay <= 0 and not due.schedules):  # in the second case another instance has fired what was due
            self._is_stand_in = fired > 0
        following += [each.next_at for each in due.schedules if each not in late and each.next_at is not None]
        self._next_fire_at = min(following, default=None)
        max_sleep = self._max_sleep(due) if self._is_stand_in else MAX_SLEEP_SECONDS
        return max(MIN_SLEEP_SECONDS, self._seconds_until_next(self._overdue_us(spread=True), max_sleep))

    def _overdue_us(self, *, spread: bool = False) -> int:
        """How late a fire must be before a follower takes it over."""
        return (
            STAND_IN_DELAY_US
            if self._is_stand_in
            else OVERDUE_DELAY_US + (random.randrange(MAX_SPREAD_US) if spread else 0)
        )

    async def _load_due(self, limit: int) -> DueSchedules:
        due = await self.store.schedules.get_due(limit)
        self._sync_clock(due.now)
        self.has_schedules = bool(due.schedules) or due.next_at is not None or due.min_interval is not None
        return due

    async def _fire(self, due: DueSchedules, schedules: Sequence[Schedule]) -> tuple[list[int], int]:
        """Fire these. Returns the fire times that follow, and the number of schedules that this call has fired."""
        firings = [firing for each in schedules if (firing := self._plan(each, due.now)) is not None]
        following = [] if due.next_at is None else [due.next_at]
        done = 0
        for start in range(0, len(firings), MAX_BATCH):
            batch = firings[start : start + MAX_BATCH]
            for firing, fired in zip(batch, await self.store.schedules.fire(batch), strict=True):
                if not fired.applied:
                    following.append(due.now + RETRY_DELAY_US)  # fired by another instance, or changed: load again
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
            # Another version of this program may be able to read it: it stays due, and is logged once.
            if self._unreadable.get(schedule.name) != schedule.revision:
                self._unreadable[schedule.name] = schedule.revision
                facts = {"schedule": schedule.name, "reason": str(error)}
                log.error("a schedule in the store cannot be read: it is not fired here", extra=facts)
            return None
        self._unreadable.pop(schedule.name, None)
        return firing

    def _max_sleep(self, due: DueSchedules) -> float:
        """The maximum sleep. An interval counted from the end of a run gets its next fire time when that run ends; if it is so
        short that the next heartbeat would bring that time too late, we poll."""
        known = (each.definition for each in due.schedules if each.name not in self._unreadable)
        rules = [int(definition.rule) for definition in known if definition.kind is RuleKind.AFTER]
        shortest = min([*rules, *([] if due.min_interval is None else [due.min_interval])], default=None)
        if shortest is None or shortest / 1e6 > 2 * self.heartbeat:
            return MAX_SLEEP_SECONDS
        return max(MIN_SLEEP_SECONDS, shortest / 4e6)

    def _seconds_until_next(self, delay_us: int, max_sleep: float) -> float:
        if self._next_fire_at is None:
            return max_sleep
        store_now = int(self.clock.monotonic() * 1e6) + self._skew_us
        return min(max_sleep, (self._next_fire_at + delay_us - store_now) / 1e6)

    def _sync_clock(self, now: int) -> None:
        """Fire times are the store's; we sleep by our own clock."""
        self._skew_us = now - int(self.clock.monotonic() * 1e6)

    def _emit_events(self, firing: FireRequest, fired: FireResult, now: int) -> None:
        me = self.identity()
        if fired.jobs and self.events.has_subscribers(ScheduleFired):
            enqueued = set(fired.jobs)
            for fire in firing.fires:
                if fire.job in enqueued:
                    late = max(0, now - fire.run_at) / 1e6
                    event = ScheduleFired(instance=me, schedule=firing.name, at=fire.at, job=fire.job, late=late)
                    self.events.emit(event)
        if self.events.has_subscribers(ScheduleSkipped):
            for skip in _skip_events(me, firing, fired):
                self.events.emit(skip)


def _skip_events(me: InstanceId, firing: FireRequest, fired: FireResult) -> Iterable[ScheduleSkipped]:
    skipped, enqueued = list(firing.skipped), set(fired.jobs)
    left = [fire.at for fire in firing.fires if fire.job not in enqueued]
    if left and fired.skipped:
        skipped.append(SkippedRange(first=left[0], last=left[-1], count=len(left), reason=OVERLAP_REASON))
    for skip in skipped:
        yield ScheduleSkipped(instance=me, schedule=firing.name, **msgspec.structs.asdict(skip))
