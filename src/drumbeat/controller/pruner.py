"""Delete what is past its retention: history, fires, audit records, counts, dead instances, messages of rooms that nobody took.
Give up jobs that are blocked on a version for too long, and end those that expired and that nobody claims.

The leader prunes; after five minutes without a leader, because all instances are workers only, every instance does. Each step
is small, bounded and idempotent. It uses the store of the program's loop and not the heartbeat's: pruning may have to wait
for another transaction, and the heartbeat must not.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from drumbeat.clock import jitter
from drumbeat.controller.part import ControllerPart
from drumbeat.core.stats import HOUR_RETENTION_US, TEN_SECONDS_RETENTION_US, Resolution
from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.settings import Settings

RUN_INTERVAL = 60.0
RETRY_DELAY = 5.0
"""After a failure: pruning may be what frees space in a full store."""
LEADERLESS_TIMEOUT = 300.0
MAX_BATCH = 1_000
BATCH_DELAY = 0.2
"""Between two batches, so that the store has time for jobs."""
INSTANCE_RETENTION_SECONDS = 86_400.0
TOTALS_RETENTION_SECONDS = 3_600.0
"""How long the totals of a dead instance have rows of their own; then they are added to those of all dead instances."""
ORPHAN_RETENTION_SECONDS = 60.0
"""Messages of rooms for a dead instance."""
MESSAGE_RETENTION_SECONDS = 3_600.0
"""Messages of rooms for a living instance that does not take them."""

PruneStep = Callable[[], Awaitable[int | None]]


@dataclass(eq=False, repr=False)
class Pruner(ControllerPart):
    settings: Settings
    name = "pruner"

    async def run(self) -> None:
        while True:
            await self.clock.sleep(jitter(min(RETRY_DELAY, RUN_INTERVAL) if self.backoff.is_active else RUN_INTERVAL))
            if not self.elector.is_leader and self.elector.leaderless_seconds < LEADERLESS_TIMEOUT:
                self.backoff.reset()  # the leader does it now
                continue
            try:
                await self.prune_all()
            except StoreUnavailable as error:
                await self.backoff.wait(error)
            else:
                self.backoff.reset()

    async def prune_all(self) -> None:
        """Take each step once, in batches."""
        store, now = self.store, await self.store.inspect.now()
        kept_since = now - int(self.settings.retention * 1e6)
        awaited_since = now - int(self.settings.wait_for_version * 1e6)
        idle_since = now - int(TOTALS_RETENTION_SECONDS * 1e6)
        acted_since = now - int(self.settings.audit_retention * 1e6)
        steps: list[PruneStep] = [
            lambda: store.jobs.prune(kept_since, MAX_BATCH),
            lambda: store.schedules.prune_fires(kept_since, MAX_BATCH),
            lambda: store.jobs.expire(MAX_BATCH),
            lambda: store.jobs.expire_blocked("version:", awaited_since, MAX_BATCH),
            lambda: store.audit.prune(acted_since, MAX_BATCH),
            lambda: store.stats.prune(
                {
                    Resolution.TEN_SECONDS: now - TEN_SECONDS_RETENTION_US,
                    Resolution.MINUTE: kept_since,
                    Resolution.HOUR: now - HOUR_RETENTION_US,
                },
                idle_since=idle_since,
                limit=MAX_BATCH,
            ),
            lambda: store.instances.prune(now - int(INSTANCE_RETENTION_SECONDS * 1e6)),
        ]
        refused: StoreFull | None = None
        for step in steps:
            try:
                await self._run_batches(step)
            except StoreFull as error:
                refused = error  # the other steps may free space
        # Rooms may be in another store than the rest; what is left there now is pruned the next time.
        with suppress(StoreUnavailable):
            living = [each.id for each in await store.inspect.list_instances()]
            await self._run_batches(
                lambda: store.rooms.prune(int(ORPHAN_RETENTION_SECONDS * 1e6), MAX_BATCH, exclude=living)
            )
            await self._run_batches(lambda: store.rooms.prune(int(MESSAGE_RETENTION_SECONDS * 1e6), MAX_BATCH))
        if refused is not None:
            raise refused

    async def _run_batches(self, step: PruneStep) -> None:
        while await step() == MAX_BATCH:
            await self.clock.sleep(BATCH_DELAY)
