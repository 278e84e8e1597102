"""`app.system`: what a person should know of the stores that an app goes by."""

from __future__ import annotations

import builtins
from collections.abc import Callable

import msgspec

from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.errors import DrumbeatError
from drumbeat.settings import Settings
from drumbeat.store.urls import open_store

from .doctor import examine

COORDINATION_PREFIX = "coordination: "
"""Before the names of what is said about the second store."""


class System:
    """Look at the stores themselves."""

    def __init__(self, client: Client, settings: Callable[[], Settings], clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock

    async def facts(self) -> builtins.list[HealthCheck]:
        """What the store is, how large, what its settings mean for jobs, and what is wrong with it; then the same of the second
        store, if there is one. That the second one is away is a finding, no error."""
        store = await self._client.store()
        found = await store.inspect.check_health()
        settings = self._settings()
        if settings.coordination is not None:
            found += await self._read_coordination_facts(settings.coordination, settings.namespace)
        return found

    async def doctor(self) -> builtins.list[HealthCheck]:
        """The facts, and what is wrong with everything on the store: workers, queues, tasks, schedules, locks, jobs."""
        return [*await self.facts(), *await examine(self._client, self._clock)]

    async def _read_coordination_facts(self, url: str, namespace: str) -> builtins.list[HealthCheck]:
        try:
            async with await open_store(url, namespace=namespace, clock=self._clock) as store:
                found = await store.inspect.check_health()
        except DrumbeatError as error:
            advice = (
                "locks and rooms wait for it, and wake-ups go by the first store meanwhile: see what is wrong with it"
            )
            found = [HealthCheck(name="store", level=HealthLevel.BAD, value=str(error), advice=advice)]
        return [msgspec.structs.replace(each, name=COORDINATION_PREFIX + each.name) for each in found]
