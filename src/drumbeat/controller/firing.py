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
from drumbeat.errors import ConfigError, StoreUnavailable
from drumbeat.events import Events, ScheduleFired, ScheduleSkipped
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.model.instance import Pulse
from drumbeat.model.schedule import Due, Fired, Firing, RuleKind, Schedule
from drumbeat.schedules.planner import plan
from drumbeat.service import Patience, Wakeup
from drumbeat.store.protocol import Schedules

log = logging.getLogger(__name__)

BATCH = 200
OVERDUE_US = 1_000_000
"""From then on it is anybody's to fire."""
SPREAD_US = 250_000
"""Followers come one after the other, so that the first can do it for all."""
STAND_IN_US = 100_000
"""How late a stand-in fires: a leader that lives comes first, and the stand-in finds out that it is not needed."""
AGAIN_US = 50_000
SOONEST = 0.05
LONGEST = 3_600.0
"""Nobody sleeps longer. Each heartbeat brings the next moment, so there is nothing to look for meanwhile."""


class Firer:
    name = "firing"

    def __init__(
        self,
        schedules: Schedules,
        elector: Elector,
        clock: Clock,
        events: Events,
        patience: Patience,
        *,
        heartbeat: float,
        identity: Callable[[], InstanceId],
    ) -> None:
        self._schedules = schedules
        self._elector = elector
        self._clock = clock
        self._events = events
        self._patience = patience
        self._heartbeat = heartbeat
        self._identity = identity
        self._wakeup = Wakeup(clock)
        self._led = False
        self._skew_us = 0
        self._expected: int | None = None
        self._broken: dict[str, int] = {}
        self._stands_in = False
        self.sees_schedules = True
        """Whether the last look found any that is active: due, to come, or under way."""

    def hear(self, pulse: Pulse) -> None:
        """What the heartbeat says of the next moment; we look again if it is sooner than expected, or if we lead anew."""
        self._set_clock(pulse.now)
        leads = self._elector.leads
        was_due = self._expected is not None and self._expected <= pulse.now
        if was_due and (pulse.next_fire is None or pulse.next_fire > (self._expected or 0)):
            self._stands_in = False  # somebody else has fired it
        sooner = pulse.next_fire is not None and (self._expected is None or pulse.next_fire < self._expected)
        if sooner or not leads:
            self._expected = pulse.next_fire
        # It may have passed while we sleep, if the store's clock has stepped.
        passed = self._expected is not None and self._expected <= pulse.now
        if sooner or passed or leads != self._led:
            self._wakeup.set()

    def wake(self) -> None:
        """Schedules have changed: look again."""
        self._wakeup.set()

    async def run(self) -> None:
        while True:
            self._wakeup.clear()  # before looking: what is heard meanwhile must not be lost
            try:
                pause = await self.look()
            except StoreUnavailable as error:
                await self._patience.suffer(error)
            else:
                self._patience.over()
                await self._wakeup.wait(pause)

    async def look(self) -> float:
        """Fire what is ours to fire. Returns for how many seconds to sleep."""
        self._led = self._elector.leads
        if self._led:
            self._stands_in = False
        return await (self._fire_all() if self._led else self._fire_overdue())

    async def _fire_all(self) -> float:
        while True:
            limit = BATCH + len(self._broken)
            due = await self._due(limit)
            following, _ = await self._fire(due, due.schedules)
            if len(due.schedules) < limit:
                break
        self._expected = min(following, default=None)
        return self._until_expected(0, self._look_often(due))

    async def _fire_overdue(self) -> float:
        """What somebody else should have fired, and has not."""
        if (pause := self._until_expected(self._overdue(spread=True), LONGEST)) > 0 and not self._stands_in:
            return pause
        due = await self._due(BATCH + len(self._broken))
        overdue_since = due.now - self._overdue()
        late = [each for each in due.schedules if each.next_at is not None and each.next_at <= overdue_since]
        following, fired = await self._fire(due, late)
        if late or (pause <= 0 and not due.schedules):  # in the second case somebody else has fired what was expected
            self._stands_in = fired > 0
        following += [each.next_at for each in due.schedules if each not in late and each.next_at is not None]
        self._expected = min(following, default=None)
        most = self._look_often(due) if self._stands_in else LONGEST
        return max(SOONEST, self._until_expected(self._overdue(spread=True), most))

    def _overdue(self, *, spread: bool = False) -> int:
        """How late a moment must be to be ours, though we do not lead."""
        return STAND_IN_US if self._stands_in else OVERDUE_US + (random.randrange(SPREAD_US) if spread else 0)

    async def _due(self, limit: int) -> Due:
        due = await self._schedules.due(limit)
        self._set_clock(due.now)
        self.sees_schedules = bool(due.schedules) or due.next_at is not None or due.shortest is not None
        return due

    async def _fire(self, due: Due, schedules: Sequence[Schedule]) -> tuple[list[int], int]:
        """Fire these. Returns the moments that follow, to be looked at, and how many schedules were fired by this call."""
        firings = [firing for each in schedules if (firing := self._planned(each, due.now)) is not None]
        following = [] if due.next_at is None else [due.next_at]
        done = 0
        for start in range(0, len(firings), BATCH):
            batch = firings[start : start + BATCH]
            for firing, fired in zip(batch, await self._schedules.fire(batch), strict=True):
                if not fired.done:
                    following.append(due.now + AGAIN_US)  # somebody else has done it, or it was changed: look again
                    continue
                done += 1
                if firing.next_at is not None:
                    following.append(firing.next_at)
                self._tell(firing, fired, due.now)
        return following, done

    def _planned(self, schedule: Schedule, now: int) -> Firing | None:
        try:
            firing = plan(schedule, now, lambda _: new_job_id())
        except ConfigError as error:
            # Another version of this program may read it: it stays due, and is told once.
            if self._broken.get(schedule.name) != schedule.revision:
                self._broken[schedule.name] = schedule.revision
                facts = {"schedule": schedule.name, "reason": str(error)}
                log.error("a schedule in the store cannot be read: it is not fired here", extra=facts)
            return None
        self._broken.pop(schedule.name, None)
        return firing

    def _look_often(self, due: Due) -> float:
        """How long to sleep at most: an interval counted from the end of a run gets its moment when that run ends, and if it is
        so short that the next heartbeat comes too late with the news, we look for ourselves."""
        known = (each.definition for each in due.schedules if each.name not in self._broken)
        rules = [int(definition.rule) for definition in known if definition.kind is RuleKind.AFTER]
        shortest = min([*rules, *([] if due.shortest is None else [due.shortest])], default=None)
        if shortest is None or shortest / 1e6 > 2 * self._heartbeat:
            return LONGEST
        return max(SOONEST, shortest / 4e6)

    def _until_expected(self, patience_us: int, most: float) -> float:
        if self._expected is None:
            return most
        store_now = int(self._clock.monotonic() * 1e6) + self._skew_us
        return min(most, (self._expected + patience_us - store_now) / 1e6)

    def _set_clock(self, now: int) -> None:
        """Moments are the store's; we sleep by our own clock."""
        self._skew_us = now - int(self._clock.monotonic() * 1e6)

    def _tell(self, firing: Firing, fired: Fired, now: int) -> None:
        me = self._identity()
        if fired.jobs and self._events.wanted(ScheduleFired):
            enqueued = set(fired.jobs)
            for moment in firing.fires:
                if moment.job in enqueued:
                    late = max(0, now - moment.run_at) / 1e6
                    event = ScheduleFired(instance=me, schedule=firing.name, at=moment.at, job=moment.job, late=late)
                    self._events.emit(event)
        if self._events.wanted(ScheduleSkipped):
            for skip in _skips(me, firing, fired):
                self._events.emit(skip)


def _skips(me: InstanceId, firing: Firing, fired: Fired) -> Iterable[ScheduleSkipped]:
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
