"""`app.schedules`: schedules that code declares or that people create, and the history of their fires."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Unpack

import msgspec

from drumbeat.context import parent_of_new_jobs
from drumbeat.core import schedule as core
from drumbeat.core.job import Job, NewJob
from drumbeat.durations import to_us
from drumbeat.errors import InvalidArguments
from drumbeat.handle import JobHandle
from drumbeat.ids import JobId, new_job_id
from drumbeat.names import check_name, check_number
from drumbeat.schedules import planner
from drumbeat.schedules.description import describe_schedule as in_words
from drumbeat.schedules.preview import PreviewedFire, preview
from drumbeat.schedules.rules import rule_of
from drumbeat.store.protocol import Store
from drumbeat.store.schedule_change import has_same_rule, put_changed
from drumbeat.tasks import Task

from .part import AdminPart, check_note
from .schedule_definition import RuleOptions, change_definition, draft_definition, new_definition
from .views import FireInfo, ScheduleInfo, fire_info, schedule_info

PAGE = 1_000
BATCH = 200
MAX_FIRE_TIMES = 10_000
"""Previewed, listed or backfilled by one call."""
MAX_TRIES = 20
_JOB_FIELDS = (
    "task",
    "queue",
    "args",
    "signature",
    "priority",
    "retries",
    "timeout",
    "crash_limit",
    "on_dead",
    "expires",
    "group",
    "lane",
)
"""What each job of a schedule gets from its definition."""


class BackfillResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a backfill."""

    jobs: tuple[JobId, ...]
    """Enqueued jobs, including those that wait for the one before."""
    skipped: int
    """Fire times that had fired before, or that overlap forbids."""


class Schedules(AdminPart):
    """Create, change, pause and inspect schedules."""

    async def create(
        self,
        task: str | Task[..., Any],
        *,
        name: str | None = None,
        replace: bool = False,
        by: str | None = None,
        **options: Unpack[RuleOptions],
    ) -> ScheduleInfo:
        """Create a schedule for a task of this program: `cron=` or `every=`, and the options of `@app.cron` and `@app.every`.

        replace: put it in the place of one with this name that was created at run time. Its history stays, and so does a pause;
        a rule that is the same goes on, another one counts from now.

        Raises:
            ConfigError: which option is wrong, and what it may be. UnknownTask: there is no such task here.
            InvalidArguments: a schedule with this name exists, or with replace=True one that code declares.
        """
        found = task if isinstance(task, Task) else self._client.registry[task]
        made, by = new_definition(self._client, found, name, options), self._check_by(by)
        store = await self._client.store()
        for _ in range(MAX_TRIES):
            next_at = planner.first_fire_time(made, await store.inspect.now())
            if await store.schedules.put(made, revision=None, cursor=None, next_at=next_at, by=by):
                break
            if not replace:
                raise InvalidArguments(
                    f"there is a schedule {made.name!r} already: change it, replace it (replace=True, --replace), "
                    "or give another name",
                    "name",
                )
            known = await store.schedules.get(made.name)
            if known is not None and known.state is not core.ScheduleState.RETIRED:
                await self._compare_and_set(made.name, lambda store, known: self._put(store, known, made, by))
                break
        else:
            raise _busy_error(made.name)
        return await self.show(made.name)

    async def change(self, name: str, *, by: str | None = None, **options: Unpack[RuleOptions]) -> ScheduleInfo:
        """Change the given options of a schedule that was created at run time. A changed rule counts from now.

        Raises:
            ConfigError: which option is wrong, and what it may be.
            InvalidArguments: there is no such schedule, or code declares it.
        """
        by = self._check_by(by)

        async def change(store: Store, known: core.Schedule) -> bool:
            _check_changeable(known)
            return await self._put(store, known, change_definition(self._client, known.definition, options), by)

        await self._compare_and_set(name, change)
        return await self.show(name)

    async def _put(self, store: Store, known: core.Schedule, made: core.NewSchedule, by: str) -> bool:
        """Put a definition in the place of the known one. False: another writer was faster."""
        _check_changeable(known)
        now = await store.inspect.now()
        cursor, next_at = known.cursor, known.next_at
        if not has_same_rule(known.definition, made):
            cursor, next_at = now, planner.next_after_change(known, made, now)
        return await put_changed(store, known, made, cursor=cursor, next_at=next_at, by=by)

    async def pause(self, name: str, *, reason: str = "", by: str | None = None) -> bool:
        """Stop it from firing; its jobs are not affected. Returns False if it was paused already."""
        reason, by = check_note("reason", reason), self._check_by(by)

        async def pause(store: Store, known: core.Schedule) -> bool | None:
            if known.state is not core.ScheduleState.ACTIVE:
                return None
            return await store.schedules.set_state(_new_change(known, core.ScheduleState.PAUSED, by=by, reason=reason))

        return await self._compare_and_set(name, pause)

    async def resume(self, name: str, *, by: str | None = None) -> bool:
        """Let it fire again. The fires of the pause are recorded as skipped. Returns False if it was not paused."""
        by = self._check_by(by)

        async def resume(store: Store, known: core.Schedule) -> bool | None:
            return await self._resume(store, known, by) if known.state is core.ScheduleState.PAUSED else None

        return await self._compare_and_set(name, resume)

    async def _resume(self, store: Store, known: core.Schedule, by: str) -> bool:
        now = await store.inspect.now()
        next_at = planner.first_fire_time(known.definition, now)
        change = msgspec.structs.replace(_new_change(known, core.ScheduleState.ACTIVE, by=by), next_at=next_at)
        if known.definition.kind is not core.RuleKind.AFTER:
            since = known.created_at if known.cursor is None else known.cursor
            for skipped in planner.skip_range(rule_of(known.definition), since, now, "paused"):
                change = msgspec.structs.replace(change, cursor=skipped.last, skipped=skipped)
        return await store.schedules.set_state(change)

    async def delete(self, name: str, *, reason: str = "", by: str | None = None) -> None:
        """Retire a schedule. It stays on record, and so does its history. One that code declares returns when an instance of
        that program starts."""
        reason, by = check_note("reason", reason), self._check_by(by)

        def retire(store: Store, known: core.Schedule) -> Awaitable[bool]:
            return store.schedules.set_state(_new_change(known, core.ScheduleState.RETIRED, by=by, reason=reason))

        await self._compare_and_set(name, retire)

    async def run_now(self, name: str) -> JobHandle[Any]:
        """Enqueue its job at once, whatever its state and overlap; its next fire time does not change."""
        made = (await self._find(name)).definition
        rule_of(made)  # refuses a malformed record
        return await self._client.enqueue(
            NewJob(id=new_job_id(), parent=parent_of_new_jobs(), **{name: getattr(made, name) for name in _JOB_FIELDS})
        )

    async def backfill(self, name: str, first: datetime, last: datetime, *, force: bool = False) -> BackfillResult:
        """Fire what was missed from `first` to `last`, as `overlap` allows. The schedule's next fire time does not change.

        force: also fire times older than the recorded history, which may have fired before.

        Raises:
            InvalidArguments: there are no such fire times, too many, or it is not active.
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
            firing = core.FireRequest(
                name=name, revision=known.revision, expected_cursor=known.cursor, fires=fires, advances=False
            )
            [fired] = await store.schedules.fire([firing])
            if not fired.applied:
                raise InvalidArguments(f"schedule {name!r} is not active: resume it first", "name")
            jobs += fired.jobs
            skipped += fired.skipped
        return BackfillResult(jobs=tuple(jobs), skipped=skipped)

    def _find_fire_times(self, known: core.Schedule, begin: int, end: int, now: int, force: bool) -> builtins.list[int]:
        made = known.definition
        if made.kind is core.RuleKind.AFTER:
            raise InvalidArguments(
                f"schedule {made.name!r} has no fire times to backfill: each follows the end of a run", "name"
            )
        if end > now or begin > end:
            raise InvalidArguments("first and last must be in the past, first before last", "last")
        if not force and begin < now - int(self._client.settings.retention * 1_000_000):
            raise InvalidArguments(
                "first lies before the recorded history, so what has fired then is unknown: give force=True",
                "first",
            )
        number = rule_of(made).count(begin - 1, end)
        if not 0 < number <= MAX_FIRE_TIMES:
            raise InvalidArguments(
                f"there are {number} fire times between first and last, and there may be 1 to {MAX_FIRE_TIMES}", "last"
            )
        return planner.fire_times_between(made, begin, end, number)

    async def preview(
        self, name: str | None = None, *, count: int = 10, **options: Unpack[RuleOptions]
    ) -> builtins.list[PreviewedFire]:
        """The next fires of a schedule, or of a rule (`cron=`, `tz=`, ...), for which no store is needed; with a note where
        daylight saving time begins or ends. With a rule, `name` is the name that H depends on, and with `start=` in the past
        the list begins there: what would have fired."""
        check_number("count", count, 1, MAX_FIRE_TIMES)
        if options:
            draft, now = draft_definition(name, options), self._client.clock.now_us()
            return preview(draft, now if draft.start is None else min(now, draft.start - 1), count)
        if name is None:
            raise InvalidArguments("say which schedule, or a rule: cron= or every=", "name")
        known = await self._find(name)
        store = await self._client.store()
        return preview(known.definition, await store.inspect.now(), count)

    async def in_words(self, name: str | None = None, **options: Unpack[RuleOptions]) -> str:
        """The rule of a schedule, or one that is given as for `preview`, in words."""
        if options:
            return in_words(draft_definition(name, options))
        return (await self.show(name or "")).words

    async def list(self, *, all: bool = False) -> builtins.list[ScheduleInfo]:
        """All schedules, by name. all: also retired ones."""
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
        """One schedule, also a retired one."""
        return schedule_info(await self._find(name, retired=True))

    async def history(
        self, name: str, *, before: datetime | None = None, limit: int = 50, jobs: bool = True
    ) -> builtins.list[FireInfo]:
        """Its fires, newest first, with their jobs as far as these are still known.

        `before=` the last one's `at` gives the next page. jobs=False: give the ids of the jobs, but do not read them.
        """
        check_number("limit", limit, 1, MAX_FIRE_TIMES)
        await self._find(name, retired=True)
        store = await self._client.store()
        until = None if before is None else to_us(before, name="before")
        fires = (await store.schedules.list_fires([name], before=until, limit=limit))[name]
        found: dict[JobId, Job] = {}
        wanted = [fire.job for fire in fires if fire.job is not None] if jobs else []
        for start in range(0, len(wanted), PAGE):
            found |= await store.inspect.get_jobs(wanted[start : start + PAGE], preview=0)
        return [fire_info(fire, None if fire.job is None else found.get(fire.job)) for fire in fires]

    async def _find(self, name: str, *, retired: bool = False) -> core.Schedule:
        check_name("schedule", name)
        store = await self._client.store()
        known = await store.schedules.get(name)
        if known is None or (known.state is core.ScheduleState.RETIRED and not retired):
            gone = " any more" if known is not None else ""
            raise InvalidArguments(f"there is no schedule {name!r}{gone}", "name")
        return known

    async def _compare_and_set(self, name: str, step: Callable[[Store, core.Schedule], Awaitable[bool | None]]) -> bool:
        """Repeat `step` until no other writer interferes (True). None from it means there is nothing to change: False."""
        for _ in range(MAX_TRIES):
            known = await self._find(name)
            applied = await step(await self._client.store(), known)
            if applied is not False:
                return applied is True
        raise _busy_error(name)


def _busy_error(name: str) -> InvalidArguments:
    return InvalidArguments(f"schedule {name!r} is being changed by others all the time: try again", "name")


def _check_changeable(known: core.Schedule) -> None:
    old = known.definition
    if old.origin is core.Origin.CODE:
        raise InvalidArguments(
            f"schedule {old.name!r} is declared in the code of app {old.app!r}: change it there, or pause it here",
            "name",
        )


def _new_change(known: core.Schedule, state: core.ScheduleState, *, by: str, reason: str = "") -> core.ScheduleChange:
    return core.ScheduleChange(
        name=known.name, revision=known.revision, state=state, cursor=known.cursor, by=by, reason=reason
    )
