"""`app.instances`: the running processes of the cluster."""

from __future__ import annotations

import builtins

from drumbeat.client import Client
from drumbeat.core.instance import Instance, LeaderInfo, is_healthy
from drumbeat.errors import InvalidArguments
from drumbeat.names import short_repr


class Instances:
    """Look at instances."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self, *, healthy: bool | None = None, all: bool = False) -> builtins.list[Instance]:
        """Living instances, oldest first.

        healthy: True: only those that beat within the last 2 s (or two heartbeats); False: only those that did not. None: both.
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
        """Who leads the cluster, in which term, and for how long; None: nobody does at this moment."""
        return await (await self._client.store()).inspect.get_leader()
