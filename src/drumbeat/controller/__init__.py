"""The controller: schedules, leader election, pruning and start-up calls of an instance.

    on the heartbeat's thread, loop and store     firer, schedule rescuer, schedule declarations, elector
    on the program's loop and store               pruner, release sweeper, lane sweeper, limit declarations;
                                                  before the first claim: limits, start-up calls

A worker-only instance declares its schedules and, if there is no leader, prunes; it fires nothing and never leads. A handler
that blocks the worker's loop delays no fire.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from drumbeat.clock import Clock
from drumbeat.controller.elector import Elector
from drumbeat.controller.firer import Firer
from drumbeat.controller.lane_sweeper import LaneSweeper
from drumbeat.controller.limit_declarations import LimitDeclarations
from drumbeat.controller.pruner import Pruner
from drumbeat.controller.release_sweeper import ReleaseSweeper
from drumbeat.controller.schedule_declarations import ScheduleDeclarations
from drumbeat.controller.schedule_rescuer import ScheduleRescuer
from drumbeat.controller.startup import AcquireLock, InThread, StartupRunner
from drumbeat.core.instance import HeartbeatReply, Leader
from drumbeat.core.schedule import NewSchedule
from drumbeat.events import Events, LeaderChanged, ScheduleRestored
from drumbeat.ids import InstanceId
from drumbeat.outage import FullStoreReporter, OutageReporter
from drumbeat.service import OutageBackoff
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.tasks.line_policies import LineView
from drumbeat.tasks.schedule_decorators import DeclaredStartupCall


@dataclass(eq=False, repr=False)
class Controller:
    """Made on the program's loop. `resign`, `create_...`, `run_startup` and `stop_startup` are called there, the rest on the
    heartbeat's loop."""

    settings: Settings
    clock: Clock
    events: Events
    declared: Sequence[NewSchedule]
    startup_calls: Sequence[DeclaredStartupCall]
    acquire_lock: AcquireLock

    def __post_init__(self) -> None:
        settings = self.settings
        self._is_controller = settings.role != "worker"
        # Shorter than `dead_after`: the lease of a dead leader expires before it is declared dead.
        lease = max(min(settings.leader_lease, settings.dead_after - 2 * settings.heartbeat), 3 * settings.heartbeat)
        self._elector = Elector(self.clock, lease, self._on_change, is_candidate=self._is_controller)
        self._firer: Firer | None = None
        self._declarations: ScheduleDeclarations | None = None
        self._startup: StartupRunner | None = None
        self._id = InstanceId("")
        self.outage_reporter = OutageReporter(self.events, self.clock, settings.url, lambda: self._id)
        """Reports outages of the store for the whole instance."""

    def requested_lease_us(self) -> int | None:
        return self._elector.requested_lease_us()

    def resign(self) -> None:
        self._elector.resign()

    def on_identity(self, id: InstanceId) -> None:
        self._id = id
        if self._declarations is not None:
            self._declarations.wake()  # registered again: a store that lost us may have lost the schedules, too

    def on_heartbeat(self, reply: HeartbeatReply, asked_at: float) -> None:
        self._elector.on_heartbeat(self._id, reply, asked_at)
        if self._firer is not None:
            self._firer.on_heartbeat(reply)

    def on_missed_heartbeat(self) -> None:
        self._elector.on_missed_heartbeat()

    async def run(self, store: Store) -> None:
        """Run until cancelled."""
        # A worker reports an outage by its own calls; a controller-only instance has no others.
        listener = (
            self.outage_reporter if self.settings.role == "controller" else FullStoreReporter(self.outage_reporter)
        )
        firing, declaring, rescuing = (OutageBackoff(self.clock, listener) for _ in range(3))
        shared = (store, self._elector, self.clock)
        firer = self._firer = Firer(*shared, firing, self.events, self.settings.heartbeat, lambda: self._id)
        declarations = self._declarations = ScheduleDeclarations(
            *shared,
            declaring,
            self.declared,
            on_declared=firer.wake,
            on_restored=lambda name: self.events.emit(ScheduleRestored(instance=self._id, schedule=name)),
        )
        rescuer = ScheduleRescuer(*shared, rescuing, is_needed=lambda: firer.has_schedules)
        async with asyncio.TaskGroup() as group:
            for service in (declarations, firer, rescuer) if self._is_controller else (declarations,):
                group.create_task(service.run(), name=service.name)

    def create_pruner(self, store: Store) -> Pruner:
        """A service for the program's loop."""
        backoff = OutageBackoff(self.clock, FullStoreReporter(self.outage_reporter))
        return Pruner(store, self._elector, self.clock, backoff, self.settings)

    def create_release_sweeper(self, store: Store) -> ReleaseSweeper:
        """A service for the program's loop."""
        backoff = OutageBackoff(self.clock, FullStoreReporter(self.outage_reporter))
        return ReleaseSweeper(store, self._elector, self.clock, backoff)

    def create_lane_sweeper(self, store: Store, view: LineView) -> LaneSweeper:
        """A service for the program's loop."""
        backoff = OutageBackoff(self.clock, FullStoreReporter(self.outage_reporter))
        return LaneSweeper(store, self._elector, self.clock, backoff, has_lines=bool(view.declared))

    def create_limit_declarations(self, store: Store, view: LineView, tasks: Mapping[str, str]) -> LimitDeclarations:
        """A service for the program's loop. `tasks`: the queues of tasks without a policy of their own."""
        backoff = OutageBackoff(self.clock, FullStoreReporter(self.outage_reporter))
        return LimitDeclarations(store, self._elector, self.clock, backoff, view, tasks, self.settings.version)

    async def run_startup(
        self,
        store: Store,
        *,
        in_thread: InThread,
        identity: Callable[[], InstanceId],
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        """Call `prepare`, then make the start-up calls, on the program's loop."""
        calls = self._startup = StartupRunner(
            self.startup_calls,
            self.settings,
            self.clock,
            OutageBackoff(self.clock, self.outage_reporter),
            in_thread=in_thread,
            acquire_lock=self.acquire_lock,
            identity=identity,
            prepare=prepare,
        )
        await calls.run(store.schedules)

    def stop_startup(self) -> None:
        """The process stops: signal the running start-up call, and make no other."""
        if self._startup is not None:
            self._startup.stop()

    def _on_change(self, leader: Leader | None) -> None:
        if leader is not None and self._is_controller:
            self.events.emit(LeaderChanged(instance=self._id, leader=leader.instance, term=leader.term))
