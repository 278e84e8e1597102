"""`app.system`: the state of the stores that an app uses."""

from __future__ import annotations

import builtins

import msgspec

from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.errors import DrumbeatError
from drumbeat.store.urls import open_store

from .doctor import examine
from .health import HealthMonitor
from .health_rules import Health
from .part import AdminPart

COORDINATION_PREFIX = "coordination: "
"""Prefix of the names of checks of the coordination store."""


class System(AdminPart):
    """Check the stores and the cluster."""

    async def facts(self) -> builtins.list[HealthCheck]:
        """The store's version, size, settings that matter for jobs, and problems; then the same of the coordination store, if
        there is one. A coordination store that is unavailable is a finding, not an error."""
        store = await self._client.store()
        found = await store.inspect.check_health()
        settings = self._client.settings
        if settings.coordination is not None:
            found += await self._read_coordination_facts(settings.coordination, settings.namespace)
        return found

    async def doctor(self) -> builtins.list[HealthCheck]:
        """The facts, and the problems of workers, queues, tasks, schedules, locks and jobs."""
        return [*await self.facts(), *await examine(self._client, self._client.clock)]

    async def health(self) -> Health:
        """Whether the cluster does its work, and the reasons if not, the worst first: as on every page of the dashboard."""
        store = await self._client.store()
        report = await HealthMonitor(self._client.clock).check(store, heartbeat=self._client.settings.heartbeat)
        return report.health

    async def _read_coordination_facts(self, url: str, namespace: str) -> builtins.list[HealthCheck]:
        try:
            async with await open_store(url, namespace=namespace, clock=self._client.clock) as store:
                found = await store.inspect.check_health()
        except DrumbeatError as error:
            advice = "locks and rooms wait until it answers; wake-ups use the first store meanwhile"
            found = [HealthCheck(name="store", level=HealthLevel.BAD, value=str(error), advice=advice)]
        return [msgspec.structs.replace(each, name=COORDINATION_PREFIX + each.name) for each in found]
