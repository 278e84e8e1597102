"""Write the schedules that the code declares to the store, at the start of every instance, whatever its role.

    at start      each declared schedule that is missing in the store, or differs, is put (compare and set on its revision)
    every minute  its name is declared again, because code still has it; a schedule that has vanished is put again
    the leader    retires what was not declared for ten minutes, if living instances of the same app exist

In a rolling deploy old and new code run side by side: the last instance to start decides, and what only one version declares
stays. A schedule of another app, or made by a person, is not touched. A person's pause survives a change of the code.

A store that was emptied (FLUSHALL, a server without persistence) has no schedules, and would never fire again. Its instances
notice with their next beat that they are unknown, and register again: then, too, names are declared at once. A schedule that
a person has deleted is retired and still in the store, so it does not come back.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from drumbeat.clock import jitter
from drumbeat.controller.part import ControllerPart
from drumbeat.core.schedule import NewSchedule, Origin, Schedule, ScheduleState
from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.schedules.planner import first_fire_time, next_after_change
from drumbeat.service import Wakeup
from drumbeat.store.schedule_change import has_same_rule, put_changed

log = logging.getLogger(__name__)

RUN_INTERVAL = 60.0
RETIRE_DELAY = 600.0
MAX_ATTEMPTS = 10
"""Lost races against other changes of the same schedule."""


@dataclass(eq=False, repr=False)
class ScheduleDeclarations(ControllerPart):
    declared: Sequence[NewSchedule]
    on_declared: Callable[[], None] = lambda: None
    on_restored: Callable[[str], None] = lambda name: None
    """Called with the name of a schedule that had vanished from the store and was put again."""
    name = "schedule declarations"

    def __post_init__(self) -> None:
        self._wakeup = Wakeup(self.clock)
        self._began_at = self.clock.monotonic()

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
                await self.backoff.wait(error)
                self._began_at = self.clock.monotonic()  # others could not declare anything either
            else:
                self.backoff.reset()
                step = self.redeclare
                await self._wakeup.wait(jitter(RUN_INTERVAL))

    async def declare_all(self) -> None:
        try:
            for definition in self.declared:
                await self._put(definition)
        except StoreFull:
            await self._declare()  # no space for a change, but existing schedules must not be retired for that
            raise
        await self._declare()
        self.on_declared()

    async def redeclare(self) -> None:
        """Declare all names again, and put what has vanished; the leader retires what no code declares.

        Only a leader that has run for RETIRE_DELAY itself: after a night without any instance every declaration is old, and the
        first to come back must not retire what the others will declare in a minute.
        """
        await self._restore(await self._declare())
        if self.elector.is_leader and self.clock.monotonic() - self._began_at >= RETIRE_DELAY:
            undeclared_since = await self.store.inspect.now() - int(RETIRE_DELAY * 1e6)
            for name in await self.store.schedules.retire_undeclared(undeclared_since):
                log.warning("schedule retired: no code declares it any more", extra={"schedule": name})

    async def _declare(self) -> list[str]:
        """Declare all names. Returns those that are not in the store."""
        if not self.declared:
            return []
        return await self.store.schedules.declare([each.name for each in self.declared])

    async def _restore(self, missing: Sequence[str]) -> None:
        for definition in self.declared:
            if definition.name in missing and await self._put(definition):
                self.on_restored(definition.name)
        if missing:
            self.on_declared()

    async def _put(self, definition: NewSchedule) -> bool:
        """Bring the stored schedule in line with the code; retried after a lost race. Returns whether this call has written."""
        for _ in range(MAX_ATTEMPTS):
            known = await self.store.schedules.get(definition.name)
            if known is not None and known.state is not ScheduleState.RETIRED:
                if not _is_owned(known.definition, definition) or _is_same(known.definition, definition):
                    return False
                done = await self._change(known, definition)
            else:
                now = await self.store.inspect.now()
                done = await self.store.schedules.put(
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
        if known.state is not ScheduleState.PAUSED and not has_same_rule(known.definition, definition):
            now = await self.store.inspect.now()
            cursor, next_at = now, next_after_change(known, definition, now)
        by = _changed_by(definition)
        return await put_changed(self.store, known, definition, cursor=cursor, next_at=next_at, by=by)


def _changed_by(definition: NewSchedule) -> str:
    return f"{definition.app} {definition.version}".strip()


def _is_owned(known: NewSchedule, definition: NewSchedule) -> bool:
    if known.origin is Origin.CODE and known.app == definition.app:
        return True
    owner = f"app {known.app!r}" if known.origin is Origin.CODE else "a person"
    facts = {"schedule": known.name, "app": definition.app, "owner": owner}
    log.error("schedule not declared: its name belongs to another app, or to a person", extra=facts)
    return False


def _is_same(known: NewSchedule, definition: NewSchedule) -> bool:
    """But for the version: the same schedule in a newer program is not a change."""
    return msgspec.structs.replace(known, version=definition.version) == definition
