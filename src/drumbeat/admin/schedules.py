"""`app.schedules`: rules in time, those that the code declares and those that people make, and what became of their moments."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Unpack

import msgspec

from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.core.job import Job, NewJob
from drumbeat.core.schedule import (
    FireRequest,
    NewSchedule,
    Origin,
    RuleKind,
    Schedule,
    ScheduleChange,
    ScheduleState,
    SkippedRange,
)
from drumbeat.durations import Duration, to_us
from drumbeat.errors import InvalidArguments
from drumbeat.handle import JobHandle
from drumbeat.ids import JobId, new_job_id
from drumbeat.names import check_name, short_repr
from drumbeat.schedules import planner
from drumbeat.schedules.description import describe_schedule as in_words
from drumbeat.schedules.preview import PreviewedFire, preview
from drumbeat.schedules.rules import check_definition, rule_of
from drumbeat.store.protocol import Store
from drumbeat.tasks import Task
from drumbeat.tasks.schedule_options import (
    Args,
    Fields,
    ScheduleJobOptions,
    TimingOptions,
    build_definition,
    encode_args,
    parse_args,
    parse_job_options,
    parse_rule,
    parse_timing,
)

from .notes import check_note
from .views import FireInfo, ScheduleInfo, fire_info, schedule_info

PAGE = 1_000
BATCH = 200
MAX_FIRE_TIMES = 10_000
"""So many at most are previewed or backfilled at once."""
MAX_TRIES = 20


class ScheduleFields(TimingOptions, ScheduleJobOptions, total=False):
    """What may be said of a schedule beside its rule, and what its jobs may have otherwise than their task."""


class RuleOptions(ScheduleFields, total=False):
    """All of it."""

    cron: str
    every: Duration
    grid: bool
    tz: str
    args: Args


class BackfillResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a backfill."""

    jobs: tuple[JobId, ...]
    """Those that were enqueued, now or behind the one before."""
    skipped: int
    """Moments that have been fired before, or that overlap forbids."""


class Schedules:
    """Make, change, pause and look at schedules."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def create(
        self,
        task: str | Task[..., Any],
        *,
        name: str | None = None,
        by: str | None = None,
        **options: Unpack[RuleOptions],
    ) -> ScheduleInfo:
        """Make a schedule for a task of this program: `cron=` or `every=`, and what `@app.cron` and `@app.every` take.

        Raises:
            ConfigError: which word is wrong, and what it may be. UnknownTask: there is no such task here.
            InvalidArguments: there is a schedule of this name.
        """
        found = task if isinstance(task, Task) else self._client.registry[task]
        fields = parse_rule(
            options.get("cron"), options.get("every"), options.get("grid", False), options.get("tz", "UTC")
        )
        fields |= _read_options(options)
        made = build_definition(found.name if name is None else name, found, fields)
        made = self._complete_definition(made, found, options.get("args", ()))
        store = await self._client.store()
        next_at = planner.first_fire_time(made, await store.inspect.now())
        if not await store.schedules.put(made, revision=None, cursor=None, next_at=next_at, by=self._check_by(by)):
            raise InvalidArguments(
                f"there is a schedule {made.name!r} already: change it, or give another name", "name"
            )
        return await self.show(made.name)

    async def change(self, name: str, *, by: str | None = None, **options: Unpack[RuleOptions]) -> ScheduleInfo:
        """Change what is given of a schedule that was made at run time. A changed rule counts from now.

        Raises:
            ConfigError: which word is wrong, and what it may be. InvalidArguments: there is no such schedule, or it belongs to
            some program's code.
        """

        async def changed(store: Store, known: Schedule) -> bool:
            old = known.definition
            if old.origin is Origin.CODE:
                raise InvalidArguments(
                    f"schedule {name!r} is declared in the code of app {old.app!r}: change it there, or pause it here",
                    "name",
                )
            made = self._apply_options(old, options)
            now = await store.inspect.now()
            cursor, next_at = known.cursor, known.next_at
            if not _has_same_rule(old, made):
                cursor, next_at = now, planner.next_after_change(known, made, now)
            if known.state is ScheduleState.ACTIVE:
                return await store.schedules.put(
                    made, revision=known.revision, cursor=cursor, next_at=next_at, by=self._check_by(by)
                )
            return await self._put_paused(store, known, made, cursor, self._check_by(by))

        await self._compare_and_set(name, changed)
        return await self.show(name)

    async def _put_paused(self, store: Store, known: Schedule, made: NewSchedule, cursor: int | None, by: str) -> bool:
        """`put` makes it active; without a next moment nothing is fired until it is paused again."""
        if not await store.schedules.put(made, revision=known.revision, cursor=cursor, next_at=None, by=by):
            return False
        await store.schedules.set_state(
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
        return True

    async def pause(self, name: str, *, reason: str = "", by: str | None = None) -> bool:
        """Fire nothing of it from now on. Jobs that are there go on. Returns False if it was paused already."""
        reason, by = check_note("reason", reason), self._check_by(by)
        done = False

        async def paused(store: Store, known: Schedule) -> bool:
            nonlocal done
            done = known.state is ScheduleState.ACTIVE
            return not done or await self._set_state(store, known, ScheduleState.PAUSED, by, reason)

        await self._compare_and_set(name, paused)
        return done

    async def resume(self, name: str, *, by: str | None = None) -> bool:
        """Go on with it. The moments of the pause are skipped, on record. Returns False if it was not paused."""
        by = self._check_by(by)
        done = False

        async def resumed(store: Store, known: Schedule) -> bool:
            nonlocal done
            done = known.state is ScheduleState.PAUSED
            return not done or await self._resume(store, known, by)

        await self._compare_and_set(name, resumed)
        return done

    async def _resume(self, store: Store, known: Schedule, by: str) -> bool:
        now = await store.inspect.now()
        cursor, skipped = known.cursor, builtins.list[SkippedRange]()
        if known.definition.kind is not RuleKind.AFTER:
            since = known.created_at if known.cursor is None else known.cursor
            skipped = planner.skip_range(rule_of(known.definition), since, now, "paused")
            cursor = skipped[0].last if skipped else cursor
        return await store.schedules.set_state(
            ScheduleChange(
                name=known.name,
                revision=known.revision,
                state=ScheduleState.ACTIVE,
                cursor=cursor,
                next_at=planner.first_fire_time(known.definition, now),
                by=by,
                reason="",
                skipped=skipped[0] if skipped else None,
            )
        )

    async def delete(self, name: str, *, reason: str = "", by: str | None = None) -> None:
        """Retire a schedule. Its record stays, and so does what it has fired. One that some program's code declares comes back
        when an instance of that program starts."""
        reason, by = check_note("reason", reason), self._check_by(by)
        await self._compare_and_set(
            name, lambda store, known: self._set_state(store, known, ScheduleState.RETIRED, by, reason)
        )

    async def run_now(self, name: str) -> JobHandle[Any]:
        """Enqueue its job at once, whatever its state, its next moment and overlap are; they stay as they are."""
        made = (await self._find(name)).definition
        rule_of(made)  # one that cannot be read as it is stored is not run either
        job = NewJob(
            id=new_job_id(),
            task=made.task,
            queue=made.queue,
            args=made.args,
            signature=made.signature,
            priority=made.priority,
            retries=made.retries,
            timeout=made.timeout,
            crash_limit=made.crash_limit,
            on_dead=made.on_dead,
        )
        return await self._client.enqueue(job)

    async def backfill(self, name: str, first: datetime, last: datetime, *, force: bool = False) -> BackfillResult:
        """Fire the moments from `first` to `last` that were not fired, as `overlap` allows. The schedule's own time stays.

        force: also moments that are older than the record of fires: they may have been fired before.

        Raises:
            InvalidArguments: it has no such moments, too many, or is not active.
        """
        known = await self._find(name)
        store = await self._client.store()
        begin, end = to_us(first, name="first"), to_us(last, name="last")
        fire_times = self._find_fire_times(known, begin, end, await store.inspect.now(), force)
        jobs: builtins.list[JobId] = []
        skipped = 0
        for start in range(0, len(fire_times), BATCH):
            fires = tuple(
                planner.build_fire(known.definition, at, new_job_id()) for at in fire_times[start : start + BATCH]
            )
            firing = FireRequest(
                name=name, revision=known.revision, expected_cursor=known.cursor, fires=fires, advances=False
            )
            [fired] = await store.schedules.fire([firing])
            if not fired.applied:
                raise InvalidArguments(f"schedule {name!r} is not active: resume it first", "name")
            jobs += fired.jobs
            skipped += fired.skipped
        return BackfillResult(jobs=tuple(jobs), skipped=skipped)

    def _find_fire_times(self, known: Schedule, begin: int, end: int, now: int, force: bool) -> builtins.list[int]:
        made = known.definition
        if made.kind is RuleKind.AFTER:
            raise InvalidArguments(
                f"schedule {made.name!r} has no moments to fill: each follows the run before", "name"
            )
        if end > now or begin > end:
            raise InvalidArguments("first and last must be in the past, first before last", "last")
        if not force and begin < now - int(self._client.settings.retention * 1_000_000):
            raise InvalidArguments(
                "first lies before the record of fires begins, so nobody knows what was fired then: give force=True",
                "first",
            )
        number = rule_of(made).count(begin - 1, end)
        if not 0 < number <= MAX_FIRE_TIMES:
            raise InvalidArguments(
                f"there are {number} moments between first and last, and there may be 1 to {MAX_FIRE_TIMES}", "last"
            )
        return planner.fire_times_between(made, begin, end, number)

    async def preview(
        self, name: str | None = None, *, count: int = 10, **options: Unpack[RuleOptions]
    ) -> builtins.list[PreviewedFire]:
        """The next moments of a schedule, or of a rule (`cron=`, `tz=`, ...) for which no store is asked. With a note where
        the clocks change. `name` together with a rule is the name that H is chosen by; with `start=` in the past, the moments
        since then come first: what would have fired."""
        _check_number("count", count)
        if options:
            trial, now = _build_trial(name, options), self._clock.now_us()
            return preview(trial, now if trial.start is None else min(now, trial.start - 1), count)
        if name is None:
            raise InvalidArguments("say which schedule, or a rule: cron= or every=", "name")
        known = await self._find(name)
        store = await self._client.store()
        return preview(known.definition, await store.inspect.now(), count)

    async def in_words(self, name: str | None = None, **options: Unpack[RuleOptions]) -> str:
        """The rule of a schedule, or one that is given as for `preview`, as people say it."""
        if options:
            return in_words(_build_trial(name, options))
        return (await self.show(name or "")).words

    async def list(self, *, all: bool = False) -> builtins.list[ScheduleInfo]:
        """All schedules, by name. all: also those that are retired."""
        store = await self._client.store()
        found: builtins.list[ScheduleInfo] = []
        after: str | None = None
        while page := await store.schedules.list_page(after=after, limit=PAGE, all=all):
            found += map(schedule_info, page)
            after = page[-1].name
            if len(page) < PAGE:
                break
        return found

    async def show(self, name: str) -> ScheduleInfo:
        """One schedule, also one that is retired."""
        return schedule_info(await self._find(name, retired=True))

    async def history(
        self, name: str, *, before: datetime | None = None, limit: int = 50, jobs: bool = True
    ) -> builtins.list[FireInfo]:
        """What became of its moments, the newest first, and of their jobs as far as these are still known.

        `before=` the last one's `at` gives the next page. jobs: False: their jobs are named, but not looked up.
        """
        _check_number("limit", limit)
        await self._find(name, retired=True)
        store = await self._client.store()
        until = None if before is None else to_us(before, name="before")
        fires = (await store.schedules.list_fires([name], before=until, limit=limit))[name]
        found: dict[JobId, Job] = {}
        wanted = [fire.job for fire in fires if fire.job is not None] if jobs else []
        for start in range(0, len(wanted), PAGE):
            found |= await store.inspect.get_jobs(wanted[start : start + PAGE], preview=0)
        return [fire_info(fire, None if fire.job is None else found.get(fire.job)) for fire in fires]

    async def _find(self, name: str, *, retired: bool = False) -> Schedule:
        check_name("schedule", name)
        store = await self._client.store()
        known = await store.schedules.get(name)
        if known is None or (known.state is ScheduleState.RETIRED and not retired):
            gone = " any more" if known is not None else ""
            raise InvalidArguments(f"there is no schedule {name!r}{gone}", "name")
        return known

    async def _compare_and_set(self, name: str, step: Callable[[Store, Schedule], Awaitable[bool]]) -> None:
        """Look and change until nobody else has changed it in between."""
        for _ in range(MAX_TRIES):
            known = await self._find(name)
            if await step(await self._client.store(), known):
                return
        raise InvalidArguments(f"schedule {name!r} is being changed by others all the time: try again", "name")

    async def _set_state(self, store: Store, known: Schedule, state: ScheduleState, by: str, reason: str) -> bool:
        return await store.schedules.set_state(
            ScheduleChange(
                name=known.name,
                revision=known.revision,
                state=state,
                cursor=known.cursor,
                next_at=None,
                by=by,
                reason=reason,
            )
        )

    def _apply_options(self, old: NewSchedule, options: RuleOptions) -> NewSchedule:
        fields = _read_options(options)
        if {"cron", "every", "grid"} & options.keys():
            every: Any = options.get("every")
            if every is None and "cron" not in options and old.kind is not RuleKind.CRON:
                every = int(old.rule) / 1_000_000
            grid = options.get("grid", "cron" not in options and old.kind is RuleKind.GRID)
            fields |= parse_rule(options.get("cron"), every, grid, options.get("tz", old.tz))
        elif "tz" in options:
            fields["tz"] = options["tz"]
        made = msgspec.structs.replace(old, **fields)
        if "args" not in options:
            check_definition(made)
            return made
        return self._complete_definition(made, self._client.registry[old.task], options["args"])

    def _complete_definition(self, made: NewSchedule, task: Task[..., Any], args: Args) -> NewSchedule:
        settings = self._client.settings
        check_definition(made)
        if made.queue not in self._client.declared_queues():
            known = ", ".join(sorted(self._client.declared_queues()))
            raise InvalidArguments(f"there is no queue {made.queue!r}; known are {known}", "queue")
        by_place, by_name = parse_args(args)
        return msgspec.structs.replace(
            made,
            args=encode_args(task, by_place, by_name, settings.payload_limit),
            signature=task.signature.hash,
            crash_limit=settings.crash_limit if task.options.on_crash == "retry" else 1,
            on_dead=None if task.on_dead_task is None else task.on_dead_task.name,
            app=settings.name,
        )

    def _check_by(self, by: str | None) -> str:
        return check_note("by", self._client.settings.name if by is None else by)


def _build_trial(name: str | None, options: RuleOptions) -> NewSchedule:
    """A definition that is only looked at."""
    fields = parse_rule(options.get("cron"), options.get("every"), options.get("grid", False), options.get("tz", "UTC"))
    base = NewSchedule(
        name=name or "preview", task="preview", kind=RuleKind.CRON, rule="", queue="preview", args="{}", signature=""
    )
    made = msgspec.structs.replace(base, **fields, **parse_timing(options))
    check_definition(made)
    return made


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_FIRE_TIMES:
        raise InvalidArguments(
            f"{name} must be a whole number from 1 to {MAX_FIRE_TIMES}, not {short_repr(value)}", name
        )


def _read_options(options: RuleOptions) -> Fields:
    if unknown := set(options) - set(RuleOptions.__annotations__):
        raise InvalidArguments(
            f"a schedule has no {min(unknown)!r}; it has {', '.join(RuleOptions.__annotations__)}", min(unknown)
        )
    return parse_timing(options) | parse_job_options(options)


def _has_same_rule(old: NewSchedule, made: NewSchedule) -> bool:
    return all(getattr(old, name) == getattr(made, name) for name in ("kind", "rule", "tz", "start", "end"))
