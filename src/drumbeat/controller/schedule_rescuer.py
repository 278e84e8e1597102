"""The net beneath the schedules: every few seconds, what stands still is set going again.

The end of a job sets the next moment of its schedule, and frees what waits behind it, in the transaction that ends it. This is
for what no transaction can see: a job that was deleted by hand, a restored backup. The jobs of dead instances are rescued
elsewhere, by every role (heartbeat.py).
"""

from collections.abc import Callable

from drumbeat.clock import Clock, jitter
from drumbeat.controller.elector import Elector
from drumbeat.errors import StoreUnavailable
from drumbeat.service import OutageBackoff
from drumbeat.store.protocol import ScheduleStore

RUN_INTERVAL = 10.0
IDLE_INTERVAL = 60.0
"""How often it is done by whoever does not lead, because a leader whose heart beats may still be stuck; and where there are no
schedules, so that an idle instance is quiet."""


class ScheduleRescuer:
    name = "rescuing"

    def __init__(
        self,
        schedules: ScheduleStore,
        elector: Elector,
        clock: Clock,
        backoff: OutageBackoff,
        *,
        is_needed: Callable[[], bool],
    ) -> None:
        self._schedules = schedules
        self._elector = elector
        self._is_needed = is_needed
        self._clock = clock
        self._backoff = backoff

    async def run(self) -> None:
        swept_at = self._clock.monotonic()
        while True:
            await self._clock.sleep(jitter(RUN_INTERVAL))
            is_often = self._elector.is_leader and self._is_needed()
            if not is_often and self._clock.monotonic() - swept_at < IDLE_INTERVAL:
                continue
            swept_at = self._clock.monotonic()
            try:
                await self._schedules.advance_stalled()
            except StoreUnavailable as error:
                await self._backoff.wait(error)
            else:
                self._backoff.reset()
