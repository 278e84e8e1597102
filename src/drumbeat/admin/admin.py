"""All parts of the administration API of one app, built together."""

from __future__ import annotations

from typing import Any, Unpack

from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.tasks import Task

from .audit import Audit
from .dead import Dead
from .history import RunQuery, history
from .instances import Instances
from .jobs import Jobs
from .limits import Limits
from .locks import Locks
from .queues import Queues
from .schedules import Schedules
from .stats import Stats
from .system import System
from .tasks import Tasks
from .views import Run
from .workflows import Workflows


class Admin:
    """`app.jobs`, `app.dead` and so on: what the dashboard needs of the app that it shows."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.registry = client.registry
        self.jobs = Jobs(client)
        self.dead = Dead(client)
        self.workflows = Workflows(client)
        self.queues = Queues(client)
        self.tasks = Tasks(client)
        self.schedules = Schedules(client)
        self.instances = Instances(client)
        self.limits = Limits(client)
        self.locks = Locks(client)
        self.stats = Stats(client)
        self.audit = Audit(client)
        self.system = System(client)

    @property
    def clock(self) -> Clock:
        return self.client.clock

    @property
    def settings(self) -> Settings:
        """Resolved at the first use, from flags, code, environment, `.env` and defaults."""
        return self.client.settings

    async def store(self) -> Store:
        """The running loop's store, opened at the first call."""
        return await self.client.store()

    async def history(self, *, task: str | Task[..., Any] | None = None, **query: Unpack[RunQuery]) -> list[Run]:
        return await history(self.client, task, query)
