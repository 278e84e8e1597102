"""Rules in time: what every engine must do with schedules. Which moments a rule has is decided by `schedules/`, not here."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.schedule import (
    DueSchedules,
    Fire,
    FireRequest,
    FireResult,
    NewSchedule,
    OnceState,
    Schedule,
    ScheduleChange,
)
from drumbeat.ids import InstanceId


class ScheduleStore(Protocol):
    """Schedules and the record of their fires. A fire is a row (schedule, moment) that is unique for ever.

    Every terminal transition of a job that some schedule's `current` names (it succeeded, became dead, was cancelled,
    whoever did it: a worker, a rescuer, a person) does, in its own transaction: `current` becomes empty; the job that has
    waited longest for this schedule (`waits_for_schedule(name)`) becomes `current`, waits for nothing any more and workers
    are woken; if there is none, then with AFTER and if active, next_at = now + rule, unless that is not before `end`. Jobs
    of a schedule that are not its `current` (replays, manual runs, earlier fires) change nothing.
    """

    async def put(
        self, schedule: NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        """Make a schedule (`revision` None) or change the definition of the one that has this revision, and make it active.

        False, and nothing is changed, if there is one already, or its revision is another. A name that is retired is made anew
        with revision None: it keeps its record of fires. `cursor` None: it keeps the one it has. With AFTER next_at stays
        empty while its job is live.
        """
        ...

    async def declare(self, names: Sequence[str]) -> list[str]:
        """Note that a running instance declares these now. Returns those of them that are not in the store, not even retired:
        it was emptied, or somebody deleted them there."""
        ...

    async def set_state(self, change: ScheduleChange) -> bool:
        """Apply the change if the schedule still has this revision; returns whether it had. What is not active has no next_at."""
        ...

    async def get(self, name: str) -> Schedule | None: ...

    async def list_page(self, *, after: str | None = None, limit: int = 1_000, all: bool = False) -> list[Schedule]:
        """By name, those after `after`; without `all` not those that are retired."""
        ...

    async def get_due(self, limit: int) -> DueSchedules:
        """What is to be fired now, at most `limit`, and when to look again. A read."""
        ...

    async def fire(self, firings: Sequence[FireRequest]) -> list[FireResult]:
        """Each by itself atomic, one answer for each, in order. Wakes workers. Quick for hundreds of schedules at once.

        Refused (`done` False) unless the schedule is active and, if it moves, has this revision and cursor. Else, for each
        moment in order: one that is on record is passed over; by the schedule's overlap, if its `current` job is live,
        it is skipped (a row with reason "overlap"), queued (its job blocked_on the schedule), or the live one and all
        that wait are cancelled first (a pending one at once: then the new one need not wait; a running one is asked to
        stop, and the new one waits for its end; of several moments only the last gets a job then, those before it are
        skipped). Otherwise its job is pending at run_at and is `current`. The job has
        the definition's task, queue, args and options, due_at = the moment, and the schedule's name. Then skipped
        stretches are recorded and cursor and next_at set (with AFTER next_at is None while the job is live).
        """
        ...

    async def advance_stalled(self) -> int:
        """Set going what stands still: active AFTER schedules without next_at whose current job is not live are due now; jobs
        that wait for a schedule without a live current job go on. Returns how many. For a sweep; nearly always none."""
        ...

    async def retire_undeclared(self, undeclared_since: int) -> list[str]:
        """Retire active and paused schedules of origin CODE that nobody has declared since, if living instances of the same app
        exist. Returns their names."""
        ...

    async def list_fires(
        self, names: Sequence[str], *, before: int | None = None, limit: int = 100
    ) -> dict[str, list[Fire]]:
        """The fire records of each of these schedules, newest first, those before `before`, at most `limit` of each.

        Every name has an entry: an empty list for a schedule that is unknown or never fired.
        """
        ...

    async def prune_fires(self, before: int, limit: int) -> int:
        """Delete records of fires whose moment (of a stretch: the last) was before this, oldest first, at most `limit`.
        Returns how many."""
        ...

    async def claim_once(self, key: str, instance: InstanceId) -> OnceState:
        """Take up what is to be done once: YOURS, and on record as this instance's, unless it is done or a living instance
        is at it. Asked again by the same instance, it is still YOURS."""
        ...

    async def complete_once(self, key: str, instance: InstanceId) -> bool:
        """It is done, for ever. False, and nothing is changed, if another has taken it up meanwhile."""
        ...
