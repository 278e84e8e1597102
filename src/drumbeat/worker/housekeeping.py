"""What has to be cleared away from time to time. Every worker does it: each step is small, bounded and harmless twice."""

from drumbeat.clock import Clock, jittered
from drumbeat.errors import StoreUnavailable
from drumbeat.service import Patience
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store

EVERY = 60.0
BATCH = 1_000
PAUSE = 0.2
"""Between two batches, so that the store has time for work."""
INSTANCES_KEPT = 86_400.0


class Housekeeper:
    name = "housekeeper"

    def __init__(self, store: Store, settings: Settings, clock: Clock, patience: Patience) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._patience = patience

    async def run(self) -> None:
        while True:
            await self._clock.sleep(jittered(EVERY))
            try:
                await self.clear()
            except StoreUnavailable as error:
                await self._patience.suffer(error)

    async def clear(self) -> None:
        """Prune old history and gone instances; give up jobs whose version did not come."""
        now = await self._store.inspect.now()
        while await self._store.jobs.prune(now - int(self._settings.retention * 1e6), BATCH) == BATCH:
            await self._clock.sleep(PAUSE)
        since = now - int(self._settings.wait_for_version * 1e6)
        while await self._store.jobs.expire_waits("version:", since, BATCH) == BATCH:
            await self._clock.sleep(PAUSE)
        await self._store.instances.forget(now - int(INSTANCES_KEPT * 1e6))
