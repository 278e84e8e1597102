"""The app as the dashboard sees it: its admin, its settings, its store. The web part never imports `drumbeat.app`."""

from __future__ import annotations

from typing import Any, Protocol, Unpack

from drumbeat.admin import Dead, Instances, Jobs, Locks, Queues, Run, RunQuery, Schedules, Tasks
from drumbeat.admin.audit import Audit
from drumbeat.admin.stats import Stats
from drumbeat.admin.system import System
from drumbeat.clock import Clock
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.tasks import Registry, Task


class DashboardApp(Protocol):
    """What `Drumbeat` is to the web part."""

    clock: Clock
    registry: Registry
    jobs: Jobs
    dead: Dead
    queues: Queues
    tasks: Tasks
    schedules: Schedules
    instances: Instances
    locks: Locks
    stats: Stats
    audit: Audit
    system: System

    @property
    def settings(self) -> Settings: ...

    async def store(self) -> Store: ...

    async def history(self, *, task: str | Task[..., Any] | None = None, **wanted: Unpack[RunQuery]) -> list[Run]: ...
