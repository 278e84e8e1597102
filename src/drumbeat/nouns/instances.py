"""`app.instances`: the running processes of the cluster."""

from __future__ import annotations

import builtins

from drumbeat.client import Client
from drumbeat.durations import to_us
from drumbeat.errors import InvalidArguments
from drumbeat.model.instance import Instance, InstanceState, LeaderInfo
from drumbeat.names import shown

HEALTHY_US = 2_000_000
"""An instance is healthy if its last beat is no older than this, by the store's clock."""


class Instances:
    """Look at instances."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self, *, healthy: bool | None = None, all: bool = False) -> builtins.list[Instance]:
        """Living instances, oldest first.

        healthy: True: only those that beat within the last 2 s; False: only those that did not. None: both.
        all: also those that left or died in the last day.
        """
        store = await self._client.store()
        found = await store.inspect.instances(all=all)
        if healthy is None:
            return found
        now = await store.inspect.now()
        return [each for each in found if _is_healthy(each, now) == healthy]

    async def show(self, id: str) -> Instance:
        """One instance, also one that left or died."""
        for instance in await self.list(all=True):
            if instance.id == id:
                return instance
        raise InvalidArguments(f"there is no instance {shown(id)}", "id")

    async def leader(self) -> LeaderInfo | None:
        """Who leads the cluster, in which term, and for how long; None: nobody does at this moment."""
        return await (await self._client.store()).inspect.leader()


def _is_healthy(instance: Instance, now: int) -> bool:
    return instance.state is InstanceState.ALIVE and now - to_us(instance.beat_at) <= HEALTHY_US
