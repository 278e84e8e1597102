"""Follows the edges of parents that have ended, beside the claims of a worker: `DependencyStore.advance` until nothing is left.

The end of a parent leaves a release in the store, whoever ends it; a call of the store loop follows the first edges itself and
says if there are more. Others may follow them, too, and a sweep of the controller comes by: nothing depends on this service.
"""

import asyncio

from drumbeat.outage import FullStoreReporter
from drumbeat.service import OutageBackoff
from drumbeat.store.protocol import DependencyStore
from drumbeat.worker.core import WorkerCore


class ReleaseFollower:
    name = "release follower"

    def __init__(self, core: WorkerCore, store: DependencyStore) -> None:
        self._store = store
        self._backoff = OutageBackoff(core.clock, FullStoreReporter(core.outage_reporter))
        self._wakeup = asyncio.Event()

    def wake(self) -> None:
        """Parents have ended. Never waits."""
        self._wakeup.set()

    async def run(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            while await self._backoff.retry(self._store.advance):
                pass
