"""The controller: what looks after the cluster beside the heart of an instance. This module shows only who lives how long.

    beside the heart (its thread, its loop, its store)     firing, rescuing, declaring; the elector hears every beat
    beside the work (the program's own loop and store)     pruning; and before the first claim: start-up tasks

A worker-only instance declares its schedules and, if nobody leads, prunes; it fires nothing and never leads. How long a handler
blocks the worker's loop, no fire is late for it.
"""

import asyncio
from collections.abc import Callable, Sequence

from drumbeat.clock import Clock
from drumbeat.controller.elector import Elector
from drumbeat.controller.firer import Firer
from drumbeat.controller.pruner import Pruner
from drumbeat.controller.schedule_declarations import ScheduleDeclarations
from drumbeat.controller.schedule_rescuer import ScheduleRescuer
from drumbeat.controller.startup import AcquireLock, InThread, StartupCall, StartupRunner
from drumbeat.core.instance import HeartbeatReply, Leader
from drumbeat.core.schedule import NewSchedule
from drumbeat.events import Events, LeaderChanged, ScheduleRestored
from drumbeat.ids import InstanceId
from drumbeat.outage import FullStoreReporter, OutageReporter
from drumbeat.service import OutageBackoff
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store


class Controller:
    """Made on the program's loop; everything but `resign`, `pruner`, `start_up` and `stop_starting` is for the heart's."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        events: Events,
        *,
        declared: Sequence[NewSchedule],
        startup_calls: Sequence[StartupCall],
        acquire_lock: AcquireLock,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._events = events
        self._declared = declared
        self._startup_calls = startup_calls
        self._acquire_lock = acquire_lock
        self._is_controller = settings.role != "worker"
        # It runs out, and another takes the lead with its next beat, before a dead leader is found dead.
        lease = max(min(settings.leader_lease, settings.dead_after - 2 * settings.heartbeat), 3 * settings.heartbeat)
        self._elector = Elector(clock, lease, self._on_change, is_candidate=self._is_controller)
        self._firer: Firer | None = None
        self._declarations: ScheduleDeclarations | None = None
        self._startup: StartupRunner | None = None
        self._id = InstanceId("")
        self.outage_reporter = OutageReporter(events, clock, settings.url, lambda: self._id)
        """What the whole instance tells of its store."""

    def requested_lease_us(self) -> int | None:
        return self._elector.requested_lease_us()

    def resign(self) -> None:
        self._elector.resign()

    def on_identity(self, id: InstanceId) -> None:
        self._id = id
        if self._declarations is not None:
            self._declarations.wake()  # registered anew: whoever forgot us may have forgotten the schedules, too

    def on_heartbeat(self, pulse: HeartbeatReply, asked_at: float) -> None:
        self._elector.on_heartbeat(self._id, pulse, asked_at)
        if self._firer is not None:
            self._firer.on_heartbeat(pulse)

    def on_missed_heartbeat(self) -> None:
        self._elector.on_missed_heartbeat()

    async def run(self, store: Store) -> None:
        """Beside the heart, until cancelled."""
        # A worker tells of an outage itself, by its own calls; who runs no jobs has only these.
        teller = (
            self.outage_reporter if self._settings.role == "controller" else FullStoreReporter(self.outage_reporter)
        )
        firing, declaring, rescuing = (OutageBackoff(self._clock, teller) for _ in range(3))
        firer = self._firer = Firer(
            store.schedules,
            self._elector,
            self._clock,
            self._events,
            firing,
            heartbeat=self._settings.heartbeat,
            identity=lambda: self._id,
        )
        declarer = self._declarations = ScheduleDeclarations(
            store,
            self._declared,
            self._elector,
            self._clock,
            declaring,
            on_declared=firer.wake,
            on_restored=lambda name: self._events.emit(ScheduleRestored(instance=self._id, schedule=name)),
        )
        rescuer = ScheduleRescuer(
            store.schedules, self._elector, self._clock, rescuing, is_needed=lambda: firer.has_schedules
        )
        async with asyncio.TaskGroup() as group:
            for service in (declarer, firer, rescuer) if self._is_controller else (declarer,):
                group.create_task(service.run(), name=service.name)

    def create_pruner(self, store: Store) -> Pruner:
        """A service for the program's own loop."""
        patience = OutageBackoff(self._clock, FullStoreReporter(self.outage_reporter))
        return Pruner(store, self._settings, self._elector, self._clock, patience)

    async def run_startup(self, store: Store, *, in_thread: InThread, identity: Callable[[], InstanceId]) -> None:
        """Make the start-up calls, on the program's own loop."""
        calls = self._startup = StartupRunner(
            self._startup_calls,
            self._settings,
            self._clock,
            OutageBackoff(self._clock, self.outage_reporter),
            in_thread=in_thread,
            acquire_lock=self._acquire_lock,
            identity=identity,
        )
        await calls.run(store.schedules)

    def stop_startup(self) -> None:
        """The process stops: tell the start-up call that is under way, and make no other."""
        if self._startup is not None:
            self._startup.stop()

    def _on_change(self, leader: Leader | None) -> None:
        if leader is not None and self._is_controller:
            self._events.emit(LeaderChanged(instance=self._id, leader=leader.instance, term=leader.term))
