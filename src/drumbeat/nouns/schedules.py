"""`app.schedules`: rules in time, those that the code declares and those that people make, and what became of their moments."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Unpack

import msgspec

from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.durations import Duration, to_us
from drumbeat.errors import InvalidArguments
from drumbeat.handle import JobHandle
from drumbeat.ids import JobId, new_job_id
from drumbeat.model.job import Job, NewJob
from drumbeat.model.schedule import Firing, NewSchedule, Origin, RuleKind, Schedule, ScheduleState, Skip
from drumbeat.names import check_name, shown
from drumbeat.schedules import planner
from drumbeat.schedules.preview import Previewed, preview
from drumbeat.schedules.rules import check, rule_of
from drumbeat.schedules.wording import words as in_words
from drumbeat.store.protocol import Store
from drumbeat.tasks import Task
from drumbeat.tasks.timing import (
    Args,
    Fields,
    Overrides,
    Timing,
    definition_of,
    encoded,
    read_args,
    read_overrides,
    read_rule,
    read_timing,
)

from .moments import FireInfo, ScheduleInfo, fire_info, info
from .notes import note

PAGE = 1_000
BATCH = 200
MOST_MOMENTS = 10_000
"""So many at most are previewed or backfilled at once."""
TRIES = 20


class Words(Timing, Overrides, total=False):
    """What may be said of a schedule beside its rule, and what its jobs may have otherwise than their task."""


class Rule(Words, total=False):
    """All of it."""

    cron: str
    every: Duration
    grid: bool
    tz: str
    args: Args


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
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
        self, task: str | Task[..., Any], *, name: str | None = None, by: str | None = None, **words: Unpack[Rule]
    ) -> ScheduleInfo:
        """Make a schedule for a task of this program: `cron=` or `every=`, and what `@app.cron` and `@app.every` take.

        Raises:
            ConfigError: which word is wrong, and what it may be. UnknownTask: there is no such task here.
            InvalidArguments: there is a schedule of this name.
        """
        found = task if isinstance(task, Task) else self._client.registry[task]
        fields = read_rule(words.get("cron"), words.get("every"), words.get("grid", False), words.get("tz", "UTC"))
        fields |= _read(words)
        made = definition_of(found.name if name is None else name, found, fields)
        made = self._checked(made, found, words.get("args", ()))
        store = await self._client.store()
        next_at = planner.first_moment(made, await store.inspect.now())
        if not await store.schedules.put(made, revision=None, cursor=None, next_at=next_at, by=self._by(by)):
            raise InvalidArguments(
                f"there is a schedule {made.name!r} already: change it, or give another name", "name"
            )
        return await self.show(made.name)

    async def change(self, name: str, *, by: str | None = None, **words: Unpack[Rule]) -> ScheduleInfo:
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
            made = self._altered(old, words)
            now = await store.inspect.now()
            cursor, next_at = known.cursor, known.next_at
            if not _same_rule(old, made):
                cursor, next_at = now, planner.renewed(known, made, now)
            if known.state is ScheduleState.ACTIVE:
                return await store.schedules.put(
                    made, revision=known.revision, cursor=cursor, next_at=next_at, by=self._by(by)
                )
            return await self._put_paused(store, known, made, cursor, self._by(by))

        await self._tried(name, changed)
        return await self.show(name)

    async def _put_paused(self, store: Store, known: Schedule, made: NewSchedule, cursor: int | None, by: str) -> bool:
        """`put` makes it active; without a next moment nothing is fired until it is paused again."""
        if not await store.schedules.put(made, revision=known.revision, cursor=cursor, next_at=None, by=by):
            return False
        await store.schedules.change(
            known.name,
            revision=known.revision + 1,
            state=ScheduleState.PAUSED,
            cursor=cursor,
            next_at=None,
            by=known.changed_by,
            why=known.why,
        )
        return True

    async def pause(self, name: str, *, why: str = "", by: str | None = None) -> bool:
        """Fire nothing of it from now on. Jobs that are there go on. Returns False if it was paused already."""
        why, by = note("why", why), self._by(by)
        done = False

        async def paused(store: Store, known: Schedule) -> bool:
            nonlocal done
            done = known.state is ScheduleState.ACTIVE
            return not done or await self._become(store, known, ScheduleState.PAUSED, by, why)

        await self._tried(name, paused)
        return done

    async def resume(self, name: str, *, by: str | None = None) -> bool:
        """Go on with it. The moments of the pause are skipped, on record. Returns False if it was not paused."""
        by = self._by(by)
        done = False

        async def resumed(store: Store, known: Schedule) -> bool:
            nonlocal done
            done = known.state is ScheduleState.PAUSED
            return not done or await self._resume(store, known, by)

        await self._tried(name, resumed)
        return done

    async def _resume(self, store: Store, known: Schedule, by: str) -> bool:
        now = await store.inspect.now()
        cursor, skipped = known.cursor, builtins.list[Skip]()
        if known.definition.kind is not RuleKind.AFTER:
            since = known.created_at if known.cursor is None else known.cursor
            skipped = planner.stretch(rule_of(known.definition), since, now, "paused")
            cursor = skipped[0].last if skipped else cursor
        return await store.schedules.change(
            known.name,
            revision=known.revision,
            state=ScheduleState.ACTIVE,
            cursor=cursor,
            next_at=planner.first_moment(known.definition, now),
            by=by,
            why="",
            skipped=skipped[0] if skipped else None,
        )

    async def delete(self, name: str, *, why: str = "", by: str | None = None) -> None:
        """Retire a schedule. Its record stays, and so does what it has fired. One that some program's code declares comes back
        when an instance of that program starts."""
        why, by = note("why", why), self._by(by)
        await self._tried(name, lambda store, known: self._become(store, known, ScheduleState.RETIRED, by, why))

    async def run_now(self, name: str) -> JobHandle[Any]:
        """Enqueue its job at once, whatever its state, its next moment and overlap are; they stay as they are."""
        made = (await self._known(name)).definition
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

    async def backfill(self, name: str, first: datetime, last: datetime, *, force: bool = False) -> Backfilled:
        """Fire the moments from `first` to `last` that were not fired, as `overlap` allows. The schedule's own time stays.

        force: also moments that are older than the record of fires: they may have been fired before.

        Raises:
            InvalidArguments: it has no such moments, too many, or is not active.
        """
        known = await self._known(name)
        store = await self._client.store()
        begin, end = to_us(first, name="first"), to_us(last, name="last")
        moments = self._to_backfill(known, begin, end, await store.inspect.now(), force)
        jobs: builtins.list[JobId] = []
        skipped = 0
        for start in range(0, len(moments), BATCH):
            fires = tuple(planner.moment(known.definition, at, new_job_id()) for at in moments[start : start + BATCH])
            firing = Firing(name=name, revision=known.revision, cursor_before=known.cursor, fires=fires, moves=False)
            [fired] = await store.schedules.fire([firing])
            if not fired.done:
                raise InvalidArguments(f"schedule {name!r} is not active: resume it first", "name")
            jobs += fired.jobs
            skipped += fired.skipped
        return Backfilled(jobs=tuple(jobs), skipped=skipped)

    def _to_backfill(self, known: Schedule, begin: int, end: int, now: int, force: bool) -> builtins.list[int]:
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
        if not 0 < number <= MOST_MOMENTS:
            raise InvalidArguments(
                f"there are {number} moments between first and last, and there may be 1 to {MOST_MOMENTS}", "last"
            )
        return planner.between(made, begin, end, number)

    async def preview(
        self, name: str | None = None, *, count: int = 10, **words: Unpack[Rule]
    ) -> builtins.list[Previewed]:
        """The next moments of a schedule, or of a rule (`cron=`, `tz=`, ...) for which no store is asked. With a note where
        the clocks change. `name` together with a rule is the name that H is chosen by; with `start=` in the past, the moments
        since then come first: what would have fired."""
        _check_number("count", count)
        if words:
            trial, now = _trial(name, words), self._clock.now_us()
            return preview(trial, now if trial.start is None else min(now, trial.start - 1), count)
        if name is None:
            raise InvalidArguments("say which schedule, or a rule: cron= or every=", "name")
        known = await self._known(name)
        store = await self._client.store()
        return preview(known.definition, await store.inspect.now(), count)

    async def in_words(self, name: str | None = None, **words: Unpack[Rule]) -> str:
        """The rule of a schedule, or one that is given as for `preview`, as people say it."""
        if words:
            return in_words(_trial(name, words))
        return (await self.show(name or "")).words

    async def list(self, *, all: bool = False) -> builtins.list[ScheduleInfo]:
        """All schedules, by name. all: also those that are retired."""
        store = await self._client.store()
        found: builtins.list[ScheduleInfo] = []
        after: str | None = None
        while page := await store.schedules.page(after=after, limit=PAGE, all=all):
            found += map(info, page)
            after = page[-1].name
            if len(page) < PAGE:
                break
        return found

    async def show(self, name: str) -> ScheduleInfo:
        """One schedule, also one that is retired."""
        return info(await self._known(name, retired=True))

    async def history(
        self, name: str, *, before: datetime | None = None, limit: int = 50, jobs: bool = True
    ) -> builtins.list[FireInfo]:
        """What became of its moments, the newest first, and of their jobs as far as these are still known.

        `before=` the last one's `at` gives the next page. jobs: False: their jobs are named, but not looked up.
        """
        _check_number("limit", limit)
        await self._known(name, retired=True)
        store = await self._client.store()
        until = None if before is None else to_us(before, name="before")
        fires = await store.schedules.fires(name, before=until, limit=limit)
        found: dict[JobId, Job] = {}
        wanted = [fire.job for fire in fires if fire.job is not None] if jobs else []
        for start in range(0, len(wanted), PAGE):
            found |= await store.inspect.records(wanted[start : start + PAGE], preview=0)
        return [fire_info(fire, None if fire.job is None else found.get(fire.job)) for fire in fires]

    async def _known(self, name: str, *, retired: bool = False) -> Schedule:
        check_name("schedule", name)
        store = await self._client.store()
        known = await store.schedules.get(name)
        if known is None or (known.state is ScheduleState.RETIRED and not retired):
            gone = " any more" if known is not None else ""
            raise InvalidArguments(f"there is no schedule {name!r}{gone}", "name")
        return known

    async def _tried(self, name: str, step: Callable[[Store, Schedule], Awaitable[bool]]) -> None:
        """Look and change until nobody else has changed it in between."""
        for _ in range(TRIES):
            known = await self._known(name)
            if await step(await self._client.store(), known):
                return
        raise InvalidArguments(f"schedule {name!r} is being changed by others all the time: try again", "name")

    async def _become(self, store: Store, known: Schedule, state: ScheduleState, by: str, why: str) -> bool:
        return await store.schedules.change(
            known.name, revision=known.revision, state=state, cursor=known.cursor, next_at=None, by=by, why=why
        )

    def _altered(self, old: NewSchedule, words: Rule) -> NewSchedule:
        fields = _read(words)
        if {"cron", "every", "grid"} & words.keys():
            every: Any = words.get("every")
            if every is None and "cron" not in words and old.kind is not RuleKind.CRON:
                every = int(old.rule) / 1_000_000
            grid = words.get("grid", "cron" not in words and old.kind is RuleKind.GRID)
            fields |= read_rule(words.get("cron"), every, grid, words.get("tz", old.tz))
        elif "tz" in words:
            fields["tz"] = words["tz"]
        made = msgspec.structs.replace(old, **fields)
        if "args" not in words:
            check(made)
            return made
        return self._checked(made, self._client.registry[old.task], words["args"])

    def _checked(self, made: NewSchedule, task: Task[..., Any], args: Args) -> NewSchedule:
        settings = self._client.settings
        check(made)
        if made.queue not in self._client.declared_queues():
            known = ", ".join(sorted(self._client.declared_queues()))
            raise InvalidArguments(f"there is no queue {made.queue!r}; known are {known}", "queue")
        by_place, by_name = read_args(args)
        return msgspec.structs.replace(
            made,
            args=encoded(task, by_place, by_name, settings.payload_limit),
            signature=task.signature.hash,
            crash_limit=settings.crash_limit if task.options.on_crash == "retry" else 1,
            on_dead=None if task.on_dead_task is None else task.on_dead_task.name,
            app=settings.name,
        )

    def _by(self, by: str | None) -> str:
        return note("by", self._client.settings.name if by is None else by)


def _trial(name: str | None, words: Rule) -> NewSchedule:
    """A definition that is only looked at."""
    fields = read_rule(words.get("cron"), words.get("every"), words.get("grid", False), words.get("tz", "UTC"))
    base = NewSchedule(
        name=name or "preview", task="preview", kind=RuleKind.CRON, rule="", queue="preview", args="{}", signature=""
    )
    made = msgspec.structs.replace(base, **fields, **read_timing(words))
    check(made)
    return made


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_MOMENTS:
        raise InvalidArguments(f"{name} must be a whole number from 1 to {MOST_MOMENTS}, not {shown(value)}", name)


def _read(words: Rule) -> Fields:
    if unknown := set(words) - set(Rule.__annotations__):
        raise InvalidArguments(
            f"a schedule has no {min(unknown)!r}; it has {', '.join(Rule.__annotations__)}", min(unknown)
        )
    return read_timing(words) | read_overrides(words)


def _same_rule(old: NewSchedule, made: NewSchedule) -> bool:
    return all(getattr(old, name) == getattr(made, name) for name in ("kind", "rule", "tz", "start", "end"))
