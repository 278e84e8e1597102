"""Every few seconds, follow the edges of parents whose ends nobody has followed.

Whoever ends a parent follows its edges at once, or says that there are more. This is for what is left behind by a process that
died in between, and for parents that were completed in a program's own transaction. Several sweepers at once are harmless. It
uses the store of the program's loop, as the pruner does: a step may wait for a row, and the heartbeat must not.
"""

from dataclasses import dataclass

from drumbeat.clock import jitter
from drumbeat.controller.part import ControllerPart
from drumbeat.errors import StoreUnavailable

RUN_INTERVAL = 4.0
"""With jitter at most 6 seconds."""
LEADERLESS_TIMEOUT = 10.0
"""Without a leader, because all instances are workers only, every instance sweeps."""


@dataclass(eq=False, repr=False)
class ReleaseSweeper(ControllerPart):
    name = "release sweeper"

    async def run(self) -> None:
        while True:
            await self.clock.sleep(jitter(RUN_INTERVAL))
            if not self.elector.is_leader and self.elector.leaderless_seconds < LEADERLESS_TIMEOUT:
                self.backoff.reset()  # the leader does it
                continue
            try:
                while await self.store.dependencies.advance():
                    pass
            except StoreUnavailable as error:
                await self.backoff.wait(error)
            else:
                self.backoff.reset()
