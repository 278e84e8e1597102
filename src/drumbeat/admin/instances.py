"""`app.instances`: the running processes of the cluster."""

from __future__ import annotations

import builtins

from drumbeat.core.instance import Instance, LeaderInfo, is_healthy
from drumbeat.errors import InvalidArguments
from drumbeat.names import short_repr

from .part import AdminPart


class Instances(AdminPart):
    """List and show instances."""

    async def list(self, *, healthy: bool | None = None, all: bool = False) -> builtins.list[Instance]:
        """Instances that are alive, oldest first.

        healthy: True: only those with a heartbeat in the last 2 s (or two intervals); False: only the others. None: both.
        all: also those that left or died in the last day.
        """
        store = await self._client.store()
        found = await store.inspect.list_instances(all=all)
        if healthy is None:
            return found
        now, heartbeat = await store.inspect.now(), self._client.settings.heartbeat
        return [each for each in found if is_healthy(each, now, heartbeat) == healthy]

    async def show(self, id: str) -> Instance:
        """One instance, also one that left or died."""
        for instance in await self.list(all=True):
            if instance.id == id:
                return instance
        raise InvalidArguments(f"there is no instance {short_repr(id)}", "id")

    async def leader(self) -> LeaderInfo | None:
        """The leader of the cluster, its term and its lease; None: there is none at present."""
        return await (await self._client.store()).inspect.get_leader()
