"""`SyncAdmin`: the administration API for code without an event loop, used as `app.sync.jobs.list()`.

`drumbeat/sync_api.py` adds the rest of `app.sync`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from drumbeat.client import Client
from drumbeat.handle import SyncJobHandle
from drumbeat.sync_loop import to_sync

from .admin import Admin
from .audit import SyncAudit
from .dead import Dead
from .enqueue_by_name import EnqueueByNameOptions
from .instances import Instances
from .jobs import Jobs
from .locks import Locks
from .queues import Queues
from .schedules import Schedules
from .stats import Stats
from .system import System
from .tasks import Tasks


class SyncJobs:
    """As `app.jobs`."""

    def __init__(self, client: Client, jobs: Jobs) -> None:
        self._client = client
        self._jobs = jobs
        self.list = to_sync("app.sync.jobs.list", jobs.list)
        self.page = to_sync("app.sync.jobs.page", jobs.page)
        self.counts = to_sync("app.sync.jobs.counts", jobs.counts)
        self.show = to_sync("app.sync.jobs.show", jobs.show)
        self.attempts = to_sync("app.sync.jobs.attempts", jobs.attempts)
        self.explain = to_sync("app.sync.jobs.explain", jobs.explain)
        self.wait = to_sync("app.sync.jobs.wait", jobs.wait)
        self.cancel = to_sync("app.sync.jobs.cancel", jobs.cancel)
        self.run_now = to_sync("app.sync.jobs.run_now", jobs.run_now)
        self.bulk = to_sync("app.sync.jobs.bulk", jobs.bulk)
        self._enqueue = to_sync("app.sync.jobs.enqueue", jobs.enqueue)

    def handle(self, id: str) -> SyncJobHandle[Any]:
        """A handle for the job with this id."""
        return SyncJobHandle(self._client, self._jobs.handle(id))

    def enqueue(
        self, task: str, args: str | Mapping[str, Any] = "{}", **options: Unpack[EnqueueByNameOptions]
    ) -> SyncJobHandle[Any]:
        """As `app.jobs.enqueue`."""
        return SyncJobHandle(self._client, self._enqueue(task, args, **options))


class SyncDead:
    """As `app.dead`."""

    def __init__(self, dead: Dead) -> None:
        self.list = to_sync("app.sync.dead.list", dead.list)
        self.page = to_sync("app.sync.dead.page", dead.page)
        self.show = to_sync("app.sync.dead.show", dead.show)
        self.groups = to_sync("app.sync.dead.groups", dead.groups)
        self.select = to_sync("app.sync.dead.select", dead.select)
        self.replay = to_sync("app.sync.dead.replay", dead.replay)
        self.discard = to_sync("app.sync.dead.discard", dead.discard)


class SyncQueues:
    """As `app.queues`."""

    def __init__(self, queues: Queues) -> None:
        self.list = to_sync("app.sync.queues.list", queues.list)
        self.show = to_sync("app.sync.queues.show", queues.show)
        self.pause = to_sync("app.sync.queues.pause", queues.pause)
        self.resume = to_sync("app.sync.queues.resume", queues.resume)


class SyncTasks:
    """As `app.tasks`."""

    def __init__(self, tasks: Tasks) -> None:
        self.list = to_sync("app.sync.tasks.list", tasks.list)
        self.show = to_sync("app.sync.tasks.show", tasks.show)
        self.history = to_sync("app.sync.tasks.history", tasks.history)


class SyncSchedules:
    """As `app.schedules`."""

    def __init__(self, client: Client, schedules: Schedules) -> None:
        self._client = client
        self._run_now = to_sync("app.sync.schedules.run_now", schedules.run_now)
        self.create = to_sync("app.sync.schedules.create", schedules.create)
        self.change = to_sync("app.sync.schedules.change", schedules.change)
        self.pause = to_sync("app.sync.schedules.pause", schedules.pause)
        self.resume = to_sync("app.sync.schedules.resume", schedules.resume)
        self.delete = to_sync("app.sync.schedules.delete", schedules.delete)
        self.backfill = to_sync("app.sync.schedules.backfill", schedules.backfill)
        self.preview = to_sync("app.sync.schedules.preview", schedules.preview)
        self.in_words = to_sync("app.sync.schedules.in_words", schedules.in_words)
        self.list = to_sync("app.sync.schedules.list", schedules.list)
        self.show = to_sync("app.sync.schedules.show", schedules.show)
        self.history = to_sync("app.sync.schedules.history", schedules.history)

    def run_now(self, name: str) -> SyncJobHandle[Any]:
        """As `app.schedules.run_now`."""
        return SyncJobHandle(self._client, self._run_now(name))


class SyncInstances:
    """As `app.instances`."""

    def __init__(self, instances: Instances) -> None:
        self.list = to_sync("app.sync.instances.list", instances.list)
        self.show = to_sync("app.sync.instances.show", instances.show)
        self.leader = to_sync("app.sync.instances.leader", instances.leader)


class SyncLocks:
    """As `app.locks`."""

    def __init__(self, locks: Locks) -> None:
        self.list = to_sync("app.sync.locks.list", locks.list)
        self.show = to_sync("app.sync.locks.show", locks.show)
        self.release = to_sync("app.sync.locks.release", locks.release)


class SyncStats:
    """As `app.stats`."""

    def __init__(self, stats: Stats) -> None:
        self.read = to_sync("app.sync.stats.read", stats.read)
        self.overall = to_sync("app.sync.stats.overall", stats.overall)
        self.totals = to_sync("app.sync.stats.totals", stats.totals)


class SyncSystem:
    """As `app.system`."""

    def __init__(self, system: System) -> None:
        self.facts = to_sync("app.sync.system.facts", system.facts)
        self.doctor = to_sync("app.sync.system.doctor", system.doctor)


class SyncAdmin:
    """The administration API of an app, for code without an event loop."""

    def __init__(self, admin: Admin) -> None:
        self.jobs = SyncJobs(admin.client, admin.jobs)
        self.dead = SyncDead(admin.dead)
        self.queues = SyncQueues(admin.queues)
        self.tasks = SyncTasks(admin.tasks)
        self.schedules = SyncSchedules(admin.client, admin.schedules)
        self.instances = SyncInstances(admin.instances)
        self.locks = SyncLocks(admin.locks)
        self.stats = SyncStats(admin.stats)
        self.audit = SyncAudit(admin.audit)
        self.system = SyncSystem(admin.system)
