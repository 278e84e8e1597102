"""What every engine must do with schedules. `schedules/` computes fire times, not the store."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core import schedule
from drumbeat.ids import InstanceId


class ScheduleStore(Protocol):
    """Schedules and their fire records. A fire is a row (schedule, fire time), which is never repeated.

    When a job ends (succeeded, dead or cancelled, by whatever: a worker, a rescuer, a person) that is the `current` job
    of a schedule, the same transaction does this: `current` becomes empty; the job that has been blocked on this
    schedule for the longest time (`blocked_on_schedule(name)`) becomes `current` and is unblocked, and workers are
    woken; if there is none and the schedule is active with AFTER, next_at = now + interval, unless that is not before
    `end`. Jobs of a schedule that are not its `current` (replays, manual runs, earlier fires) change nothing.
    """

    async def put(
        self, schedule: schedule.NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        """Create a schedule (`revision` None) or change the definition of the one that has this revision, and make it
        active.

        False, and nothing is changed, if it exists already, or has another revision. A retired name is created anew
        with revision None and keeps its fire records. `cursor` None: it keeps the one it has. With AFTER next_at stays
        empty while its job is live.
        """
        ...

    async def declare(self, names: Sequence[str]) -> list[str]:
        """Record that a running instance declares these now. Returns those that do not exist, not even as retired: the
        store was emptied, or they were deleted there."""
        ...

    async def set_state(self, change: schedule.ScheduleChange) -> bool:
        """Pause, resume or retire a schedule, if it still has this revision; returns whether it had.

        cursor and next_at as in `put`; a schedule that is not active has no next_at.
        """
        ...

    async def get(self, name: str) -> schedule.Schedule | None: ...

    async def list_page(
        self, *, after: str | None = None, limit: int = 1_000, all: bool = False
    ) -> list[schedule.Schedule]:
        """By name, those after `after`; without `all` no retired ones."""
        ...

    async def get_due(self, limit: int) -> schedule.DueSchedules:
        """The schedules to fire now, at most `limit`, and when to ask again. A read."""
        ...

    async def fire(self, firings: Sequence[schedule.FireRequest]) -> list[schedule.FireResult]:
        """Fire schedules. Each request is atomic by itself; one result for each, in order. Wakes workers. Fast for
        hundreds at once.

        Refused (`done` False) unless the schedule is active and, if the request moves it, has this revision and cursor.
        Otherwise, for each fire time in order: one that is recorded already is ignored. If the `current` job is live,
        the schedule's overlap decides: the fire is skipped (a record with reason "overlap"), queued (its job is blocked
        on the schedule), or the live job and all blocked ones are cancelled first (a pending one at once: then the new
        one is not blocked; a running one is asked to stop, and the new one is blocked until it ends; of several fire
        times only the last gets a job then, those before it are skipped). If no job is live, the new job is pending at
        run_at and becomes `current`. A job has the definition's task, queue, args and options, due_at = the fire time,
        and the schedule's name. Then skipped ranges are recorded, and cursor and next_at are set (with AFTER next_at is
        None while the job is live).
        """
        ...

    async def advance_stalled(self) -> int:
        """Repair schedules that do not advance: active AFTER schedules without next_at whose current job is not live
        become due now; jobs blocked on a schedule without a live current job are unblocked. Returns how many, nearly
        always 0. For a sweep."""
        ...

    async def retire_undeclared(self, undeclared_since: int) -> list[str]:
        """Retire active and paused schedules of origin CODE that were not declared since then, if living instances of
        the same app exist. Returns their names."""
        ...

    async def list_fires(
        self, names: Sequence[str], *, before: int | None = None, limit: int = 100
    ) -> dict[str, list[schedule.Fire]]:
        """The fire records of each of these schedules, newest first, those before `before`, at most `limit` of each.

        Every name has an entry: an empty list for a schedule that is unknown or never fired.
        """
        ...

    async def prune_fires(self, before: int, limit: int) -> int:
        """Delete fire records from before this time (of a skipped range: its last fire time), oldest first, at most
        `limit`. Returns how many."""
        ...

    async def claim_once(self, key: str, instance: InstanceId) -> schedule.OnceState:
        """Claim something that is to be done once: YOURS, and recorded as this instance's, unless it is done or a
        living instance does it. A second call by the same instance returns YOURS again."""
        ...

    async def complete_once(self, key: str, instance: InstanceId) -> bool:
        """Record that it is done, for ever. False, and nothing is changed, if another instance has claimed it since."""
        ...
