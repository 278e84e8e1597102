"""The instances of a cluster at one point in time: which are alive, which have stopped sending heartbeats. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from drumbeat.core.instance import Instance, Role
from drumbeat.durations import to_us


class InstanceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    now: int
    """By the store's clock."""
    dead_after: int
    """Microseconds without a heartbeat after which an instance does not count as alive."""
    instances: Sequence[Instance] = ()
    """Those that have not been declared dead."""

    def silence_us(self, instance: Instance) -> int:
        return self.now - to_us(instance.beat_at)

    def living_instances(self) -> list[Instance]:
        return [each for each in self.instances if self.silence_us(each) <= self.dead_after]

    def workers(self) -> list[Instance]:
        return [each for each in self.living_instances() if Role.WORKER in each.roles]
