"""All parts of the administration API of one app, built together."""

from __future__ import annotations

from collections.abc import Callable

from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.settings import Settings

from .audit import Audit
from .dead import Dead
from .instances import Instances
from .jobs import Jobs
from .locks import Locks
from .queues import Queues
from .schedules import Schedules
from .stats import Stats
from .system import System
from .tasks import Tasks


class Admin:
    """`app.jobs`, `app.dead` and so on."""

    def __init__(self, client: Client, settings: Callable[[], Settings], clock: Clock) -> None:
        self.client = client
        self.jobs = Jobs(client, clock)
        self.dead = Dead(client, self.jobs, clock)
        self.queues = Queues(client)
        self.tasks = Tasks(client)
        self.schedules = Schedules(client, clock)
        self.instances = Instances(client)
        self.locks = Locks(client)
        self.stats = Stats(client)
        self.audit = Audit(client)
        self.system = System(client, settings, clock)
