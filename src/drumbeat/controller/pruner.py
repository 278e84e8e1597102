"""What has to be cleared away from time to time: old history, fires, acts and counts, gone instances, messages that nobody
took, jobs whose version did not come.

The leader does it; after five minutes in which nobody led, because all instances are workers only, everybody does. Each step is
small, bounded and harmless twice. It works on the store of the program's own loop and not on the heart's: clearing away may
have to wait for somebody else's transaction, and the heart must not.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from drumbeat.clock import Clock, jitter
from drumbeat.controller.elector import Elector
from drumbeat.core.stats import TEN_SECONDS_RETENTION_US
from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.service import OutageBackoff
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store

RUN_INTERVAL = 60.0
RETRY_DELAY = 5.0
"""So soon what could not be done is tried again: it may be what makes room."""
LEADERLESS_TIMEOUT = 300.0
MAX_BATCH = 1_000
BATCH_DELAY = 0.2
"""Between two batches, so that the store has time for work."""
INSTANCE_RETENTION_SECONDS = 86_400.0
TOTALS_RETENTION_SECONDS = 3_600.0
"""What an instance that has gone counted has a row of its own for so long; then it is added to one of all that have gone."""
ORPHAN_RETENTION_SECONDS = 60.0
"""Messages of rooms for an instance that has gone."""
MESSAGE_RETENTION_SECONDS = 3_600.0
"""Messages of rooms for one that lives, but has no time for them."""

PruneStep = Callable[[], Awaitable[int | None]]


class Pruner:
    name = "pruning"

    def __init__(
        self, store: Store, settings: Settings, elector: Elector, clock: Clock, backoff: OutageBackoff
    ) -> None:
        self._store = store
        self._settings = settings
        self._elector = elector
        self._clock = clock
        self._backoff = backoff

    async def run(self) -> None:
        while True:
            await self._clock.sleep(jitter(min(RETRY_DELAY, RUN_INTERVAL) if self._backoff.is_active else RUN_INTERVAL))
            if not self._elector.is_leader and self._elector.leaderless_seconds < LEADERLESS_TIMEOUT:
                self._backoff.reset()  # what it could not do is another's now
                continue
            try:
                await self.prune_all()
            except StoreUnavailable as error:
                await self._backoff.wait(error)
            else:
                self._backoff.reset()

    async def prune_all(self) -> None:
        """Prune old history, fires, acts and counts, gone instances and messages; give up jobs whose version did not come."""
        store, now = self._store, await self._store.inspect.now()
        kept_since = now - int(self._settings.retention * 1e6)
        awaited_since = now - int(self._settings.wait_for_version * 1e6)
        gone_since = now - int(TOTALS_RETENTION_SECONDS * 1e6)
        acted_since = now - int(self._settings.audit_retention * 1e6)
        steps: list[PruneStep] = [
            lambda: store.jobs.prune(kept_since, MAX_BATCH),
            lambda: store.schedules.prune_fires(kept_since, MAX_BATCH),
            lambda: store.jobs.expire_blocked("version:", awaited_since, MAX_BATCH),
            lambda: store.audit.prune(acted_since, MAX_BATCH),
            lambda: store.stats.prune(
                ten_seconds_before=now - TEN_SECONDS_RETENTION_US,
                minutes_before=kept_since,
                idle_since=gone_since,
                limit=MAX_BATCH,
            ),
            lambda: store.instances.prune(now - int(INSTANCE_RETENTION_SECONDS * 1e6)),
        ]
        refused: StoreFull | None = None
        for step in steps:
            try:
                await self._run_batches(step)
            except StoreFull as error:
                refused = error  # whatever makes room must still be done
        # They may lie in another store than the rest; what is left there now is found the next time.
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
            await self._clock.sleep(BATCH_DELAY)
