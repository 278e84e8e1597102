"""The controller: what looks after the cluster beside the heart of an instance. This module shows only who lives how long.

    beside the heart (its thread, its loop, its store)     firing, rescuing, declaring; the elector hears every beat
    beside the work (the program's own loop and store)     pruning; and before the first claim: start-up tasks

A worker-only instance declares its schedules and, if nobody leads, prunes; it fires nothing and never leads. How long a handler
blocks the worker's loop, no fire is late for it.
"""

import asyncio
from collections.abc import Callable, Sequence

from drumbeat.clock import Clock
from drumbeat.controller.declaring import Declarer
from drumbeat.controller.elector import Elector
from drumbeat.controller.firing import Firer
from drumbeat.controller.pruning import Pruner
from drumbeat.controller.rescuing import Rescuer
from drumbeat.controller.starting import InThread, Locked, Starter, StartUp
from drumbeat.events import Events, LeaderChanged, ScheduleRestored
from drumbeat.ids import InstanceId
from drumbeat.model.instance import Leader, Pulse
from drumbeat.model.schedule import NewSchedule
from drumbeat.outage import OnlyFull, Outage
from drumbeat.service import Patience
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
        starters: Sequence[Starter],
        locked: Locked,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._events = events
        self._declared = declared
        self._starters = starters
        self._locked = locked
        self._controls = settings.role != "worker"
        # It runs out, and another takes the lead with its next beat, before a dead leader is found dead.
        lease = max(min(settings.leader_lease, settings.dead_after - 2 * settings.heartbeat), 3 * settings.heartbeat)
        self._elector = Elector(clock, lease, self._on_change, is_candidate=self._controls)
        self._firer: Firer | None = None
        self._declarer: Declarer | None = None
        self._starting: StartUp | None = None
        self._id = InstanceId("")
        self.outage = Outage(events, clock, settings.url, lambda: self._id)
        """What the whole instance tells of its store."""

    def wish(self) -> int | None:
        return self._elector.wish()

    def resign(self) -> None:
        self._elector.resign()

    def on_identity(self, id: InstanceId) -> None:
        self._id = id
        if self._declarer is not None:
            self._declarer.wake()  # registered anew: whoever forgot us may have forgotten the schedules, too

    def on_pulse(self, pulse: Pulse, asked_at: float) -> None:
        self._elector.hear(self._id, pulse, asked_at)
        if self._firer is not None:
            self._firer.hear(pulse)

    def on_missed(self) -> None:
        self._elector.missed()

    async def run(self, store: Store) -> None:
        """Beside the heart, until cancelled."""
        # A worker tells of an outage itself, by its own calls; who runs no jobs has only these.
        teller = self.outage if self._settings.role == "controller" else OnlyFull(self.outage)
        firing, declaring, rescuing = (Patience(self._clock, teller) for _ in range(3))
        firer = self._firer = Firer(
            store.schedules,
            self._elector,
            self._clock,
            self._events,
            firing,
            heartbeat=self._settings.heartbeat,
            identity=lambda: self._id,
        )
        declarer = self._declarer = Declarer(
            store,
            self._declared,
            self._elector,
            self._clock,
            declaring,
            synchronised=firer.wake,
            restored=lambda name: self._events.emit(ScheduleRestored(instance=self._id, schedule=name)),
        )
        rescuer = Rescuer(store.schedules, self._elector, self._clock, rescuing, is_needed=lambda: firer.sees_schedules)
        async with asyncio.TaskGroup() as group:
            for service in (declarer, firer, rescuer) if self._controls else (declarer,):
                group.create_task(service.run(), name=service.name)

    def pruner(self, store: Store) -> Pruner:
        """A service for the program's own loop."""
        patience = Patience(self._clock, OnlyFull(self.outage))
        return Pruner(store, self._settings, self._elector, self._clock, patience)

    async def start_up(self, store: Store, *, in_thread: InThread, identity: Callable[[], InstanceId]) -> None:
        """Make the start-up calls, on the program's own loop."""
        calls = self._starting = StartUp(
            self._starters,
            self._settings,
            self._clock,
            Patience(self._clock, self.outage),
            in_thread=in_thread,
            locked=self._locked,
            identity=identity,
        )
        await calls.run(store.schedules)

    def stop_starting(self) -> None:
        """The process stops: tell the start-up call that is under way, and make no other."""
        if self._starting is not None:
            self._starting.stop()

    def _on_change(self, leader: Leader | None) -> None:
        if leader is not None and self._controls:
            self._events.emit(LeaderChanged(instance=self._id, leader=leader.instance, term=leader.term))
