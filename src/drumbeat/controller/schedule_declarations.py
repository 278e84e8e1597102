"""What the code declares becomes rows: at the start of every instance, whatever its role; never by clients or commands.

    at start      each declared schedule that the store has not, or has otherwise, is put (compare and set on its revision)
    every minute  its name is declared again: somebody's code still has it; what is not in the store any more is put again
    the leader    retires what nobody has declared for ten minutes, if living instances of the same app exist

In a rolling deploy old and new code run side by side: the last one to start has its say, and what only one of them declares
stays. A schedule that another app declares, or that a person made, is not touched. A person's pause survives a change of the
code.

A store that was emptied (FLUSHALL, a server that keeps nothing over a restart) has no schedules, and would never fire again.
Its instances notice with their next beat that they are unknown, and register anew: then, too, names are declared again at once.
A schedule that a person has deleted is retired and still in the store, so it does not come back by this.
"""

import logging
from collections.abc import Callable, Sequence

import msgspec

from drumbeat.clock import Clock, jitter
from drumbeat.controller.elector import Elector
from drumbeat.core.schedule import NewSchedule, Origin, Schedule, ScheduleChange, ScheduleState
from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.schedules.planner import first_fire_time, next_after_change
from drumbeat.service import OutageBackoff, Wakeup
from drumbeat.store.protocol import Store

log = logging.getLogger(__name__)

RUN_INTERVAL = 60.0
RETIRE_DELAY = 600.0
MAX_ATTEMPTS = 10
"""So often somebody else may come before us with a change of the same schedule."""


class ScheduleDeclarations:
    name = "declaring"

    def __init__(
        self,
        store: Store,
        declared: Sequence[NewSchedule],
        elector: Elector,
        clock: Clock,
        backoff: OutageBackoff,
        *,
        on_declared: Callable[[], None] = lambda: None,
        on_restored: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`restored` is called with the name of a schedule that had vanished from the store and was put again."""
        self._store = store
        self._declared = declared
        self._elector = elector
        self._clock = clock
        self._backoff = backoff
        self._on_declared = on_declared
        self._on_restored = on_restored
        self._wakeup = Wakeup(clock)
        self._began_at = clock.monotonic()

    def wake(self) -> None:
        """Declare again now: the store may have been emptied."""
        self._wakeup.set()

    async def run(self) -> None:
        step = self.declare_all
        while True:
            self._wakeup.clear()
            try:
                await step()
            except StoreUnavailable as error:
                await self._backoff.wait(error)
                self._began_at = self._clock.monotonic()  # nor could others declare anything
            else:
                self._backoff.reset()
                step = self.redeclare
                await self._wakeup.wait(jitter(RUN_INTERVAL))

    async def declare_all(self) -> None:
        try:
            for definition in self._declared:
                await self._put(definition)
        except StoreFull:
            await self._declare()  # there may be no space for a change, but what is there must not be retired for that
            raise
        await self._declare()
        self._on_declared()

    async def redeclare(self) -> None:
        """Say again what the code declares, and put what has vanished; the leader retires what nobody declares.

        Only one that has watched for so long itself: after a night without any instance every declaration is old, and whoever
        comes back first must not retire what the others will declare in a minute.
        """
        await self._restore(await self._declare())
        if self._elector.is_leader and self._clock.monotonic() - self._began_at >= RETIRE_DELAY:
            silent_since = await self._store.inspect.now() - int(RETIRE_DELAY * 1e6)
            for name in await self._store.schedules.retire_undeclared(silent_since):
                log.warning("schedule retired: no code declares it any more", extra={"schedule": name})

    async def _declare(self) -> list[str]:
        """Returns the names that are not in the store."""
        if not self._declared:
            return []
        return await self._store.schedules.declare([each.name for each in self._declared])

    async def _restore(self, missing: Sequence[str]) -> None:
        for definition in self._declared:
            if definition.name in missing and await self._put(definition):
                self._on_restored(definition.name)
        if missing:
            self._on_declared()

    async def _put(self, definition: NewSchedule) -> bool:
        """Have the store know it as the code has it. Whoever loses a race looks again: the other may have put the same.
        Returns whether this call has written anything."""
        for _ in range(MAX_ATTEMPTS):
            known = await self._store.schedules.get(definition.name)
            if known is not None and known.state is not ScheduleState.RETIRED:
                if not _is_owned(known.definition, definition) or _is_same(known.definition, definition):
                    return False
                done = await self._change(known, definition)
            else:
                now = await self._store.inspect.now()
                done = await self._store.schedules.put(
                    definition,
                    revision=None,
                    cursor=None,
                    next_at=first_fire_time(definition, now),
                    by=_changed_by(definition),
                )
            if done:
                return True
        return False

    async def _change(self, known: Schedule, definition: NewSchedule) -> bool:
        cursor, next_at = known.cursor, known.next_at
        paused = known.state is ScheduleState.PAUSED
        if paused:
            next_at = None
        elif not _has_same_rule(known.definition, definition):
            now = await self._store.inspect.now()
            cursor, next_at = now, next_after_change(known, definition, now)
        by = _changed_by(definition)
        done = await self._store.schedules.put(
            definition, revision=known.revision, cursor=cursor, next_at=next_at, by=by
        )
        if done and paused:
            # Without a next moment nothing is fired in between.
            await self._store.schedules.set_state(
                ScheduleChange(
                    name=known.name,
                    revision=known.revision + 1,
                    state=ScheduleState.PAUSED,
                    cursor=cursor,
                    next_at=None,
                    by=known.changed_by,
                    reason=known.reason,
                )
            )
        return done


def _changed_by(definition: NewSchedule) -> str:
    return f"{definition.app} {definition.version}".strip()


def _is_owned(known: NewSchedule, definition: NewSchedule) -> bool:
    if known.origin is Origin.CODE and known.app == definition.app:
        return True
    owner = f"app {known.app!r}" if known.origin is Origin.CODE else "a person"
    facts = {"schedule": known.name, "app": definition.app, "owner": owner}
    log.error("schedule not synchronised: its name belongs to somebody else", extra=facts)
    return False


def _is_same(known: NewSchedule, definition: NewSchedule) -> bool:
    """But for the version: the same schedule in a newer program is not a change."""
    return msgspec.structs.replace(known, version=definition.version) == definition


def _has_same_rule(known: NewSchedule, definition: NewSchedule) -> bool:
    return all(getattr(known, name) == getattr(definition, name) for name in ("kind", "rule", "tz", "start", "end"))
