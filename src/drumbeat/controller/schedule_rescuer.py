"""Every few seconds, restart schedules that are stalled.

The end of a job sets the next fire time of its schedule, and starts what waits behind it, in the transaction that ends it. This
is for what no transaction can see: a job that was deleted by hand, a restored backup. Jobs of dead instances are freed by every
role (heartbeat.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

from drumbeat.clock import jitter
from drumbeat.controller.part import ControllerPart
from drumbeat.errors import StoreUnavailable

RUN_INTERVAL = 10.0
IDLE_INTERVAL = 60.0
"""For followers, because a leader may be stuck although its heartbeat goes on; and where there are no schedules, so that an
idle instance is quiet."""


@dataclass(eq=False, repr=False)
class ScheduleRescuer(ControllerPart):
    is_needed: Callable[[], bool]
    name = "schedule rescuer"

    async def run(self) -> None:
        ran_at = self.clock.monotonic()
        while True:
            await self.clock.sleep(jitter(RUN_INTERVAL))
            is_frequent = self.elector.is_leader and self.is_needed()
            if not is_frequent and self.clock.monotonic() - ran_at < IDLE_INTERVAL:
                continue
            ran_at = self.clock.monotonic()
            try:
                await self.store.schedules.advance_stalled()
            except StoreUnavailable as error:
                await self.backoff.wait(error)
            else:
                self.backoff.reset()
