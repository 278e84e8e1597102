"""Replace the definition of a stored schedule, for the code that declares it and for people."""

from drumbeat.core.schedule import NewSchedule, Schedule, ScheduleChange, ScheduleState
from drumbeat.store.protocol import Store


def has_same_rule(old: NewSchedule, new: NewSchedule) -> bool:
    return all(getattr(old, name) == getattr(new, name) for name in ("kind", "rule", "tz", "start", "end"))


async def put_changed(
    store: Store, known: Schedule, definition: NewSchedule, *, cursor: int | None, next_at: int | None, by: str
) -> bool:
    """Put the definition in place of the known one. False: another writer was faster.

    A paused schedule stays paused: `put` makes it active, but without `next_at` nothing fires before it is paused again.
    """
    is_paused = known.state is ScheduleState.PAUSED
    next_at = None if is_paused else next_at
    is_done = await store.schedules.put(definition, revision=known.revision, cursor=cursor, next_at=next_at, by=by)
    if is_done and is_paused:
        change = ScheduleChange(
            name=known.name,
            revision=known.revision + 1,
            state=ScheduleState.PAUSED,
            cursor=cursor,
            by=known.changed_by,
            reason=known.reason,
        )
        await store.schedules.set_state(change)
    return is_done
