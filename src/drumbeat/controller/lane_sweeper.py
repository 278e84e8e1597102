"""Every few seconds, compare what lanes count with the jobs that run, and delete lanes that nobody uses.

The step that ends a run gives its room back, whatever it is; a count that has drifted nevertheless would hold jobs for ever,
or let too many run. Several sweepers at once are harmless. It uses the store of the program's loop, as the pruner does.
"""

import logging
from dataclasses import dataclass

from drumbeat.clock import jitter
from drumbeat.controller.part import ControllerPart
from drumbeat.errors import StoreUnavailable

log = logging.getLogger(__name__)

RUN_INTERVAL = 5.0
IDLE_INTERVAL = 60.0
"""While nothing is declared, as in most stores."""
IDLE_SECONDS = 60.0
"""A lane that was last used before is deleted."""
MAX_LANES = 1_000
BATCH_DELAY = 0.2
LEADERLESS_TIMEOUT = 15.0
"""Without a leader, because all instances are workers only, every instance sweeps."""


@dataclass(eq=False, repr=False)
class LaneSweeper(ControllerPart):
    has_lines: bool = True
    """Whether this program declares any: else the first look can wait, too."""
    name = "lane sweeper"

    async def run(self) -> None:
        has_lines = self.has_lines
        while True:
            await self.clock.sleep(jitter(RUN_INTERVAL if has_lines else IDLE_INTERVAL))
            if not self.elector.is_leader and self.elector.leaderless_seconds < LEADERLESS_TIMEOUT:
                self.backoff.reset()  # the leader does it
                continue
            try:
                has_lines = await self.sweep()
            except StoreUnavailable as error:
                await self.backoff.wait(error)
            else:
                self.backoff.reset()

    async def sweep(self) -> bool:
        """Whether there is anything to sweep."""
        if not await self.store.limits.list_lines():
            return False  # nothing is written
        idle_before = await self.store.inspect.now() - int(IDLE_SECONDS * 1e6)
        deleted = MAX_LANES
        while deleted == MAX_LANES:
            deleted, corrected = await self.store.limits.sweep(idle_before, MAX_LANES)
            if corrected:
                log.warning(
                    "limits: counts of running jobs had drifted, and were corrected", extra={"lanes": corrected}
                )
            if deleted == MAX_LANES:
                await self.clock.sleep(BATCH_DELAY)
        return True
