"""`WorkerCore`: what every part of a worker may use. It exists before the store is open and refers to no part.

WorkerCore (this module) <-- WorkerParts (parts.py) <-- Worker (worker.py)
"""

import asyncio
import functools
from collections.abc import Callable

from drumbeat.codec import encode_result
from drumbeat.ids import InstanceId
from drumbeat.protocols import WorkerApp
from drumbeat.settings import Settings
from drumbeat.tasks.line_policies import LineView, declare_lines
from drumbeat.worker.active_runs import ActiveRuns
from drumbeat.worker.crash_journal import CrashJournal, NullCrashJournal
from drumbeat.worker.instance_lease import InstanceLease
from drumbeat.worker.lane_check import LaneCheck
from drumbeat.worker.process_guard import ProcessGuard
from drumbeat.worker.shutdown import Shutdown
from drumbeat.worker.store_clock import StoreClock
from drumbeat.worker.stuck_handlers import StuckHandlers
from drumbeat.worker.task_spec import build_task_specs, served_queues


class Identity:
    """The instance id of this worker, for its own loop. It changes when other instances have declared it dead.

    Not shared with the heartbeat's thread: the worker must lose its old claims before it sees its new id.
    """

    def __init__(self) -> None:
        self.current = InstanceId("")

    def __call__(self) -> InstanceId:
        return self.current


class WorkerCore:
    """Made on the worker's loop."""

    def __init__(
        self,
        app: WorkerApp,
        settings: Settings,
        journal: CrashJournal | NullCrashJournal,
        *,
        may_exit: bool,
        in_process: bool,
        install_signals: Callable[[], None] | None,
    ) -> None:
        self.app = app
        self.settings = settings
        self.clock = app.clock
        self.events = app.events
        self.journal = journal
        self.encode_result = functools.partial(encode_result, limit=settings.payload_limit, codec=app.registry.codec)
        queues = served_queues(app.registry, settings)
        self.lines = LineView(declare_lines(app.registry, app.registry.declared_policies, queues))
        self.lane_check = LaneCheck(app.registry, self.lines)
        self.task_specs = build_task_specs(app.registry, settings, in_process=in_process)
        self.identity = Identity()
        self.lease = InstanceLease(settings.dead_after, app.clock)
        self.store_clock = StoreClock(app.clock.now_us)
        self.store_now = self.store_clock.now_us
        self.runs = ActiveRuns()
        self.controller = app.controller(settings)
        self.outage_reporter = self.controller.outage_reporter
        self.shutdown = Shutdown(app.clock, settings.drain, may_exit=may_exit)
        self.shutdown.on_stop.append(self.controller.resign)
        self.stuck = StuckHandlers(settings.concurrency, self.shutdown.request_replacement)
        self.guard = ProcessGuard(asyncio.get_running_loop(), install_signals)

    def may_start_jobs(self) -> bool:
        """Whether a job that was claimed may begin: this worker is not to stop, and the job is surely still its own."""
        return not self.shutdown.is_stopping and self.lease.is_current()
