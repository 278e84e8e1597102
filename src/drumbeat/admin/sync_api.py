"""`SyncAdmin`: the administration API for code without an event loop, used as `app.sync.jobs.list()`.

`drumbeat/sync_api.py` adds the rest of `app.sync`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from drumbeat.handle import SyncJobHandle
from drumbeat.sync_loop import SyncMethod, SyncPart
from drumbeat.tasks.options import JobOptions

from .admin import Admin
from .audit import SyncAudit
from .dead import Dead
from .instances import Instances
from .jobs import Jobs
from .limits import Limits
from .locks import Locks
from .queues import Queues
from .schedules import Schedules
from .stats import Stats
from .system import System
from .tasks import Tasks
from .workflows import Workflows


class SyncJobs(SyncPart[Jobs]):
    """As `app.jobs`."""

    list = SyncMethod(Jobs.list)
    page = SyncMethod(Jobs.page)
    counts = SyncMethod(Jobs.counts)
    show = SyncMethod(Jobs.show)
    attempts = SyncMethod(Jobs.attempts)
    steps = SyncMethod(Jobs.steps)
    signals = SyncMethod(Jobs.signals)
    signal = SyncMethod(Jobs.signal)
    lineage = SyncMethod(Jobs.lineage)
    parents = SyncMethod(Jobs.parents)
    children = SyncMethod(Jobs.children)
    explain = SyncMethod(Jobs.explain)
    wait = SyncMethod(Jobs.wait)
    cancel = SyncMethod(Jobs.cancel)
    run_now = SyncMethod(Jobs.run_now)
    bulk = SyncMethod(Jobs.bulk)
    _enqueue = SyncMethod(Jobs.enqueue)

    def handle(self, id: str) -> SyncJobHandle[Any]:
        """A handle for the job with this id."""
        return SyncJobHandle(self._part.handle(id))

    def enqueue(
        self, task: str, args: str | Mapping[str, Any] = "{}", **options: Unpack[JobOptions]
    ) -> SyncJobHandle[Any]:
        """As `app.jobs.enqueue`."""
        return SyncJobHandle(self._enqueue(task, args, **options))


class SyncDead(SyncPart[Dead]):
    """As `app.dead`."""

    list = SyncMethod(Dead.list)
    page = SyncMethod(Dead.page)
    show = SyncMethod(Dead.show)
    groups = SyncMethod(Dead.groups)
    select = SyncMethod(Dead.select)
    replay = SyncMethod(Dead.replay)
    discard = SyncMethod(Dead.discard)


class SyncWorkflows(SyncPart[Workflows]):
    """As `app.workflows`."""

    list = SyncMethod(Workflows.list)
    show = SyncMethod(Workflows.show)
    graph = SyncMethod(Workflows.graph)
    cancel = SyncMethod(Workflows.cancel)
    replay = SyncMethod(Workflows.replay)


class SyncQueues(SyncPart[Queues]):
    """As `app.queues`."""

    list = SyncMethod(Queues.list)
    show = SyncMethod(Queues.show)
    lag = SyncMethod(Queues.lag)
    pause = SyncMethod(Queues.pause)
    resume = SyncMethod(Queues.resume)


class SyncTasks(SyncPart[Tasks]):
    """As `app.tasks`."""

    list = SyncMethod(Tasks.list)
    show = SyncMethod(Tasks.show)
    history = SyncMethod(Tasks.history)


class SyncSchedules(SyncPart[Schedules]):
    """As `app.schedules`."""

    create = SyncMethod(Schedules.create)
    change = SyncMethod(Schedules.change)
    pause = SyncMethod(Schedules.pause)
    resume = SyncMethod(Schedules.resume)
    delete = SyncMethod(Schedules.delete)
    backfill = SyncMethod(Schedules.backfill)
    preview = SyncMethod(Schedules.preview)
    in_words = SyncMethod(Schedules.in_words)
    list = SyncMethod(Schedules.list)
    show = SyncMethod(Schedules.show)
    history = SyncMethod(Schedules.history)
    _run_now = SyncMethod(Schedules.run_now)

    def run_now(self, name: str) -> SyncJobHandle[Any]:
        """As `app.schedules.run_now`."""
        return SyncJobHandle(self._run_now(name))


class SyncInstances(SyncPart[Instances]):
    """As `app.instances`."""

    list = SyncMethod(Instances.list)
    show = SyncMethod(Instances.show)
    leader = SyncMethod(Instances.leader)


class SyncLimits(SyncPart[Limits]):
    """As `app.limits`."""

    list = SyncMethod(Limits.list)
    show = SyncMethod(Limits.show)
    groups = SyncMethod(Limits.groups)
    busiest = SyncMethod(Limits.busiest)
    group = SyncMethod(Limits.group)
    set = SyncMethod(Limits.set)
    reset = SyncMethod(Limits.reset)
    set_group = SyncMethod(Limits.set_group)
    reset_group = SyncMethod(Limits.reset_group)


class SyncLocks(SyncPart[Locks]):
    """As `app.locks`."""

    list = SyncMethod(Locks.list)
    show = SyncMethod(Locks.show)
    release = SyncMethod(Locks.release)


class SyncStats(SyncPart[Stats]):
    """As `app.stats`."""

    read = SyncMethod(Stats.read)
    overall = SyncMethod(Stats.overall)
    weeks = SyncMethod(Stats.weeks)
    totals = SyncMethod(Stats.totals)


class SyncSystem(SyncPart[System]):
    """As `app.system`."""

    facts = SyncMethod(System.facts)
    doctor = SyncMethod(System.doctor)
    health = SyncMethod(System.health)


class SyncAdmin:
    """The administration API of an app, for code without an event loop."""

    def __init__(self, admin: Admin) -> None:
        self.jobs = SyncJobs(admin.jobs)
        self.dead = SyncDead(admin.dead)
        self.workflows = SyncWorkflows(admin.workflows)
        self.queues = SyncQueues(admin.queues)
        self.tasks = SyncTasks(admin.tasks)
        self.schedules = SyncSchedules(admin.schedules)
        self.instances = SyncInstances(admin.instances)
        self.limits = SyncLimits(admin.limits)
        self.locks = SyncLocks(admin.locks)
        self.stats = SyncStats(admin.stats)
        self.audit = SyncAudit(admin.audit)
        self.system = SyncSystem(admin.system)
