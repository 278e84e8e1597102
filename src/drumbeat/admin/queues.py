"""`app.queues`: the queues in which jobs wait for a worker."""

from __future__ import annotations

import builtins

import msgspec

from drumbeat.core.job_query import QueueInfo, QueueStats
from drumbeat.durations import to_us
from drumbeat.names import check_name

from .filters import check_queue
from .part import AdminPart, check_note


class Queues(AdminPart):
    """List, pause and resume queues."""

    async def list(self) -> builtins.list[QueueInfo]:
        """Every queue that has jobs, a pause or a worker, and those that this program declares, by name."""
        store = await self._client.store()
        now = await store.inspect.now()
        return [add_lag(stats, now) for stats in await self.list_stats()]

    async def lag(self, name: str | None = None) -> float:
        """Seconds for which the oldest ready job of a queue, or of all queues that are not paused, has been due: what to scale
        workers by."""
        if name is not None:
            return (await self.show(name)).lag
        return max((queue.lag for queue in await self.list() if not queue.paused), default=0.0)

    async def list_stats(self) -> builtins.list[QueueStats]:
        """As `list`, without what changes while nothing happens."""
        store = await self._client.store()
        known = {stats.name: stats for stats in await store.inspect.list_queues()}
        for name in self._client.declared_queues() - known.keys():
            known[name] = _empty_stats(name)
        return sorted(known.values(), key=lambda stats: stats.name)

    async def show(self, name: str) -> QueueInfo:
        """One queue."""
        await check_queue(self._client, check_name("queue", name))
        found = {stats.name: stats for stats in await self.list()}
        # Its last job may have ended between the two queries; the queue is known nevertheless.
        return found.get(name, add_lag(_empty_stats(name), 0))

    async def pause(self, name: str, *, reason: str = "", by: str | None = None) -> None:
        """Let no worker claim jobs of this queue. Running jobs continue; new ones wait.

        `by` and `reason` are shown with the queue; `by` defaults to the name of the app.
        """
        await check_queue(self._client, check_name("queue", name))
        store = await self._client.store()
        await store.jobs.pause_queue(name, by=self._check_by(by), reason=check_note("reason", reason))

    async def resume(self, name: str) -> bool:
        """Undo `pause`. False if it was not paused."""
        await check_queue(self._client, check_name("queue", name))
        store = await self._client.store()
        return await store.jobs.resume_queue(name)


def add_lag(stats: QueueStats, now: int) -> QueueInfo:
    """`now`: the store's, in microseconds."""
    lag = 0.0 if stats.oldest_due is None else max(0.0, (now - to_us(stats.oldest_due)) / 1e6)
    return QueueInfo(**msgspec.structs.asdict(stats), lag=lag)


def _empty_stats(name: str) -> QueueStats:
    return QueueStats(name=name, ready=0, scheduled=0, running=0, waiting=0, oldest_due=None)
