"""What stands between an app and its store in a test: it fails calls during an outage, and those of a crashed worker."""

from __future__ import annotations

from typing import Any, cast

from drumbeat.errors import StoreUnavailable
from drumbeat.store.protocol import Store
from drumbeat.testing.virtual_clock import WORKER_NUMBER

PARTS = frozenset({"jobs", "instances", "schedules", "locks", "rooms", "stats", "inspect", "audit"})


class StoreGate:
    def __init__(self) -> None:
        self.outages = 0
        """How many outages are under way."""
        self.crashed: set[int] = set()

    @property
    def is_open(self) -> bool:
        return not self.outages

    def wrap(self, store: Store) -> Store:
        return cast("Store", _GatedStore(store, self))

    def check(self) -> None:
        if WORKER_NUMBER.get() in self.crashed:
            raise StoreUnavailable("this worker has crashed")
        if self.outages:
            raise StoreUnavailable("an outage of the kit")


class _GatedStore:
    def __init__(self, store: Store, gate: StoreGate) -> None:
        self._store = store
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in PARTS:
            found = _GatedPart(found, self._gate)
        setattr(self, name, found)
        return found

    async def __aenter__(self) -> _GatedStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()


class _GatedPart:
    def __init__(self, part: Any, gate: StoreGate) -> None:
        self._part = part
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        real, gate = getattr(self._part, name), self._gate

        async def call(*args: Any, **kwargs: Any) -> Any:
            gate.check()
            return await real(*args, **kwargs)

        setattr(self, name, call)
        return call
