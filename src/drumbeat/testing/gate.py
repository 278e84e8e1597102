"""What stands between an app and its store in a test: it fails calls during an outage, and those of a crashed worker."""

from __future__ import annotations

from typing import Any, cast

from drumbeat.errors import StoreUnavailable
from drumbeat.store.protocol import Store
from drumbeat.testing.store_wrapper import StoreCall, WrappedStore
from drumbeat.testing.virtual_clock import WORKER_NUMBER


class StoreGate:
    def __init__(self) -> None:
        self.outages = 0
        """How many outages are under way."""
        self.crashed: set[int] = set()

    @property
    def is_open(self) -> bool:
        return not self.outages

    def wrap(self, store: Store) -> Store:
        return cast("Store", WrappedStore(store, self._guard))

    def check(self) -> None:
        if WORKER_NUMBER.get() in self.crashed:
            raise StoreUnavailable("this worker has crashed")
        if self.outages:
            raise StoreUnavailable("an outage of the kit")

    def _guard(self, name: str, real: StoreCall) -> StoreCall:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if name == "instances.deregister" and WORKER_NUMBER.get() in self.crashed:
                return None  # who is dead says no goodbye, and does not log that it could not
            self.check()
            return await real(*args, **kwargs)

        return call
