"""Short words for what the contract tests of schedules do again and again. No assertions here."""

from collections.abc import Sequence
from typing import Any

from drumbeat.core.schedule import (
    FireRequest,
    FireResult,
    NewSchedule,
    PlannedFire,
    RuleKind,
    Schedule,
    ScheduleChange,
    ScheduleState,
)
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.protocol import Store

SECOND = 1_000_000
MINUTE = 60 * SECOND


def new_schedule(name: str = "nightly", **options: Any) -> NewSchedule:
    facts: dict[str, Any] = {"task": "greet", "kind": RuleKind.GRID, "rule": str(MINUTE)}
    facts |= {"queue": "default", "args": '{"name":"Ada"}', "signature": "s1"}
    return NewSchedule(name=name, **(facts | options))


def after(name: str = "sweep", **options: Any) -> NewSchedule:
    """A series whose next moment is set by the end of its job: a minute later."""
    return new_schedule(name, kind=RuleKind.AFTER, **options)


async def put(store: Store, schedule: NewSchedule, *, next_at: int | None = 1, cursor: int | None = None) -> Schedule:
    """A new schedule, due since long ago unless it is said otherwise."""
    await store.schedules.put(schedule, revision=None, cursor=cursor, next_at=next_at, by="test")
    return await got(store, schedule.name)


async def got(store: Store, name: str = "nightly") -> Schedule:
    found = await store.schedules.get(name)
    if found is None:
        raise LookupError(name)
    return found


async def change(store: Store, schedule: Schedule, state: ScheduleState, **options: Any) -> bool:
    facts: dict[str, Any] = {"cursor": None, "next_at": None, "by": "somebody", "reason": "because"} | options
    return await store.schedules.set_state(
        ScheduleChange(name=schedule.name, revision=schedule.revision, state=state, **facts)
    )


def moment(at: int, *, run_at: int | None = None) -> PlannedFire:
    return PlannedFire(at=at, run_at=at if run_at is None else run_at, job=new_job_id())


def firing(schedule: Schedule, *moments: int | PlannedFire, **options: Any) -> FireRequest:
    """What a controller would ask for: these moments, and then an hour of rest."""
    fires = tuple(moment(each) if isinstance(each, int) else each for each in moments)
    last = fires[-1].at if fires else schedule.cursor
    facts: dict[str, Any] = {"cursor": last, "next_at": None if last is None else last + 60 * MINUTE} | options
    return FireRequest(
        name=schedule.name, revision=schedule.revision, expected_cursor=schedule.cursor, fires=fires, **facts
    )


async def fire(store: Store, name: str, *moments: int | PlannedFire, **options: Any) -> FireResult:
    [fired] = await store.schedules.fire([firing(await got(store, name), *moments, **options)])
    return fired


async def fired_job(store: Store, schedule: NewSchedule, at: int = 1) -> JobId:
    """A new schedule that was fired once; its job."""
    await put(store, schedule)
    [job] = (await fire(store, schedule.name, at)).jobs
    return job


async def outcomes(store: Store, name: str) -> list[tuple[int, str]]:
    """The record of a schedule, oldest first: moments and what became of them."""
    fires = (await store.schedules.list_fires([name]))[name]
    return [(fire.at, fire.outcome.value) for fire in reversed(fires)]


def names(schedules: Sequence[Schedule]) -> list[str]:
    return [schedule.name for schedule in schedules]
