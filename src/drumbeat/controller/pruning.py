"""What has to be cleared away from time to time: old history, fires, acts and counts, gone instances, messages that nobody
took, jobs whose version did not come.

The leader does it; after five minutes in which nobody led, because all instances are workers only, everybody does. Each step is
small, bounded and harmless twice. It works on the store of the program's own loop and not on the heart's: clearing away may
have to wait for somebody else's transaction, and the heart must not.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from drumbeat.clock import Clock, jittered
from drumbeat.controller.elector import Elector
from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.model.stats import TENS_KEPT_US
from drumbeat.service import Patience
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store

EVERY = 60.0
AGAIN = 5.0
"""So soon what could not be done is tried again: it may be what makes room."""
LEADERLESS = 300.0
BATCH = 1_000
PAUSE = 0.2
"""Between two batches, so that the store has time for work."""
INSTANCES_KEPT = 86_400.0
TOTALS_KEPT = 3_600.0
"""What an instance that has gone counted has a row of its own for so long; then it is added to one of all that have gone."""
ORPHANS_KEPT = 60.0
"""Messages of rooms for an instance that has gone."""
MESSAGES_KEPT = 3_600.0
"""Messages of rooms for one that lives, but has no time for them."""

Step = Callable[[], Awaitable[int | None]]


class Pruner:
    name = "pruning"

    def __init__(self, store: Store, settings: Settings, elector: Elector, clock: Clock, patience: Patience) -> None:
        self._store = store
        self._settings = settings
        self._elector = elector
        self._clock = clock
        self._patience = patience

    async def run(self) -> None:
        while True:
            await self._clock.sleep(jittered(min(AGAIN, EVERY) if self._patience.is_out else EVERY))
            if not self._elector.leads and self._elector.leaderless_for < LEADERLESS:
                self._patience.over()  # what it could not do is another's now
                continue
            try:
                await self.clear()
            except StoreUnavailable as error:
                await self._patience.suffer(error)
            else:
                self._patience.over()

    async def clear(self) -> None:
        """Prune old history, fires, acts and counts, gone instances and messages; give up jobs whose version did not come."""
        store, now = self._store, await self._store.inspect.now()
        kept_since = now - int(self._settings.retention * 1e6)
        awaited_since = now - int(self._settings.wait_for_version * 1e6)
        gone_since = now - int(TOTALS_KEPT * 1e6)
        acted_since = now - int(self._settings.audit_retention * 1e6)
        steps: list[Step] = [
            lambda: store.jobs.prune(kept_since, BATCH),
            lambda: store.schedules.forget(kept_since, BATCH),
            lambda: store.jobs.expire_waits("version:", awaited_since, BATCH),
            lambda: store.audit.prune(acted_since, BATCH),
            lambda: store.stats.prune(tens=now - TENS_KEPT_US, minutes=kept_since, gone=gone_since, limit=BATCH),
            lambda: store.instances.forget(now - int(INSTANCES_KEPT * 1e6)),
        ]
        refused: StoreFull | None = None
        for step in steps:
            try:
                await self._all(step)
            except StoreFull as error:
                refused = error  # whatever makes room must still be done
        # They may lie in another store than the rest; what is left there now is found the next time.
        with suppress(StoreUnavailable):
            living = [each.id for each in await store.inspect.instances()]
            await self._all(lambda: store.rooms.prune(int(ORPHANS_KEPT * 1e6), BATCH, but=living))
            await self._all(lambda: store.rooms.prune(int(MESSAGES_KEPT * 1e6), BATCH))
        if refused is not None:
            raise refused

    async def _all(self, step: Step) -> None:
        while await step() == BATCH:
            await self._clock.sleep(PAUSE)
