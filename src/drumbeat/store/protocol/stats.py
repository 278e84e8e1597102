"""What every engine must do with roll-ups."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from drumbeat.core.stats import Resolution, Rollup, RunEnd, WrittenRollups
from drumbeat.ids import InstanceId


class StatsStore(Protocol):
    """Roll-ups of counts and latencies, written by each instance for itself and merged when they are read.

    They need not survive the end of the server: the last seconds may be lost with a machine.
    """

    async def put(self, instance: InstanceId, rollups: Sequence[Rollup], *, instance_died: bool = False) -> bool:
        """Write what this instance has counted; `instance_died`: what others have counted for it after its end. Each
        roll-up is the whole of its (resolution, at, queue, task) and replaces what was there, so that repeating is
        harmless. Beside those for each queue and task, an interval has one of all together (OVERALL), so that no reader
        adds up thousands. All or none: False, and nothing is written, unless the instance is alive (dead, if
        `instance_died`).

        Raises:
            StoreFull: nothing was stored, there is no space.
        """
        ...

    async def read(
        self, resolution: Resolution, since: int, until: int, *, queue: str | None = None, task: str | None = None
    ) -> list[Rollup]:
        """Roll-ups of the intervals that begin in [since, until), merged over all instances, by (at, queue, task).

        queue=OVERALL, task=OVERALL: one roll-up of all queues and tasks for each interval. Resolution.TOTAL, from 0 to 1:
        everything that was ever counted; it only grows, whatever is pruned.
        """
        ...

    async def read_written(self, instance: InstanceId, since: int) -> WrittenRollups:
        """What this instance wrote: its TOTAL roll-ups, and intervals that end after `since`, OVERALL included."""
        ...

    async def read_run_ends(self, instance: InstanceId, since: int) -> list[RunEnd]:
        """The recorded runs of this instance that ended at `since` or later, in any order. Meant for shortly after its
        death: among very many others that ended at the same time, some may be missing."""
        ...

    async def prune(self, before: Mapping[Resolution, int], *, idle_since: int, limit: int) -> int:
        """Delete the intervals of each of these resolutions that began before the time given for it; add the TOTAL rows
        of instances that do not live, and wrote nothing since `idle_since`, to one that belongs to none. At most
        `limit` rows; returns how many there were."""
        ...
