"""Every engine does the same with the same history: a random one is played to it and, step by step, to a SQLite file.

The engines decide about overlap in different places (a script, a trigger), and must come to the same.
"""

import random
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.schedule import FireRequest, NewSchedule, Overlap, ScheduleState, SkippedRange
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from tests.conftest import fresh_store
from tests.contract.making import claim, end, worker
from tests.contract.scheduling import after, change, firing, got, moment, new_schedule

NAMES = ["a", "b", "c", "d", "e"]
STEPS = 70
ENDINGS = [OutcomeKind.SUCCEEDED] * 3 + [
    OutcomeKind.DEAD,
    OutcomeKind.CANCELLED,
    OutcomeKind.RETRY,
    OutcomeKind.CRASHED,
]


@pytest.fixture
async def reference(tmp_path: Path) -> AsyncIterator[Store]:
    (tmp_path / "reference").mkdir()
    async with fresh_store("sqlite", tmp_path / "reference") as store:
        yield store


def definition(name: str, chance: random.Random) -> NewSchedule:
    make = chance.choice([new_schedule, after])
    return make(name, overlap=chance.choice(list(Overlap)), crash_limit=chance.choice([1, 3]))


class Side:
    """One of the two stores, with what it has claimed."""

    def __init__(self, store: Store, me: InstanceId) -> None:
        self.store = store
        self.me = me
        self.held: dict[JobId, ClaimedJob] = {}

    async def put(self, schedule: NewSchedule) -> object:
        found = await self.store.schedules.get(schedule.name)
        revision = None if found is None or found.state is ScheduleState.RETIRED else found.revision
        return await self.store.schedules.put(schedule, revision=revision, cursor=None, next_at=10**9, by="x")

    async def change(self, name: str, state: ScheduleState, skip: SkippedRange | None) -> object:
        found = await got(self.store, name)
        return await change(self.store, found, state, next_at=2 * 10**9, skipped=skip)

    async def fire(self, firings: list[Callable[[Store], Coroutine[Any, Any, FireRequest]]]) -> object:
        return await self.store.schedules.fire([await make(self.store) for make in firings])

    async def claim(self, limit: int) -> object:
        jobs = await claim(self.store, self.me, limit=limit)
        self.held |= {job.id: job for job in jobs}
        return sorted(job.id for job in jobs)

    async def finish(self, id: JobId, kind: OutcomeKind) -> object:
        return await end(self.store, self.me, self.held.pop(id), kind)

    async def seen(self) -> list[object]:
        """Everything but moments that were set by the clock."""
        schedules = [
            (
                *(each.definition, each.state, each.revision, each.cursor, each.current, each.reason),
                each.next_at if each.next_at in {None, 10**9, 2 * 10**9} else "set",
            )
            for each in await self.store.schedules.list_page(all=True)
        ]
        fires = [
            (each.schedule, each.at, each.last, each.count, each.outcome, each.reason, each.job)
            for name in NAMES
            for each in (await self.store.schedules.list_fires([name]))[name]
        ]
        jobs = [
            (job.id, job.state, job.schedule, job.blocked_on, job.cancel_requested, job.due_at, job.failures)
            for job in await find_jobs(self.store, JobFilter(limit=1_000))
        ]
        return [*schedules, *fires, *jobs]


class Play:
    """Steps that are the same for both sides, chosen by chance."""

    def __init__(self, chance: random.Random, sides: list[Side]) -> None:
        self._chance = chance
        self._sides = sides
        self._at = 100

    async def step(self) -> str:
        steps = [self._put, self._change, *[self._fire] * 5, *[self._claim] * 3, *[self._finish] * 4]
        steps += [self._cancel, self._rearm, self._replay]
        step = self._chance.choice(steps)
        await step()
        return step.__name__

    async def _both(self, call: Callable[[Side], Coroutine[Any, Any, object]]) -> object:
        answers = [await call(side) for side in self._sides]
        assert answers[0] == answers[1]
        return answers[0]

    async def _put(self) -> None:
        schedule = definition(self._chance.choice(NAMES), self._chance)
        await self._both(lambda side: side.put(schedule))

    async def _change(self) -> None:
        known = [each.name for each in await self._sides[1].store.schedules.list_page(all=True)]
        if known:
            name, state = self._chance.choice(known), self._chance.choice(list(ScheduleState))
            self._at += 1
            skip = self._chance.choice(
                [None, SkippedRange(first=self._at, last=self._at + 3, count=2, reason="pa\"u's")]
            )
            await self._both(lambda side: side.change(name, state, skip))

    async def _fire(self) -> None:
        known = [each.name for each in await self._sides[1].store.schedules.list_page()]
        chosen = self._chance.sample(known, self._chance.randint(0, len(known)))
        chosen += self._chance.choices(chosen, k=1) if chosen and self._chance.random() < 0.2 else []
        makes = [self._firing(name) for name in chosen]
        await self._both(lambda side: side.fire(makes))

    def _firing(self, name: str) -> Callable[[Store], Coroutine[Any, Any, FireRequest]]:
        count = self._chance.choice([0, 1, 1, 1, 2, 3])
        jitter = self._chance.choice([0, 0, 5])
        moments = [moment(self._at + number, run_at=self._at + number + jitter) for number in range(count)]
        if self._chance.random() < 0.2:
            moments = [moment(self._chance.randint(90, self._at)) for _ in range(count)]
        self._at += count
        skipped = (
            (SkippedRange(first=self._at, last=self._at, count=1, reason="late"),)
            if self._chance.random() < 0.2
            else ()
        )
        moves = self._chance.random() < 0.8
        cursor = self._at if moments or skipped else None

        async def make(store: Store) -> FireRequest:
            return firing(
                await got(store, name), *moments, skipped=skipped, advances=moves, cursor=cursor, next_at=10**9
            )

        return make

    async def _claim(self) -> None:
        limit = self._chance.randint(1, 4)
        await self._both(lambda side: side.claim(limit))

    async def _finish(self) -> None:
        held = sorted(self._sides[0].held)
        if held:
            id, kind = self._chance.choice(held), self._chance.choice(ENDINGS)
            await self._both(lambda side: side.finish(id, kind))

    async def _cancel(self) -> None:
        jobs = [job.id for job in await find_jobs(self._sides[1].store, JobFilter(limit=1_000))]
        if jobs:
            chosen = self._chance.sample(jobs, min(3, len(jobs)))
            await self._both(lambda side: side.store.jobs.cancel(chosen))

    async def _replay(self) -> None:
        letters = [job.id for job in await find_jobs(self._sides[1].store, JobFilter(dead_letters=True))]
        if letters:
            await self._both(lambda side: side.store.jobs.replay(letters[:1]))

    async def _rearm(self) -> None:
        await self._both(lambda side: side.store.schedules.advance_stalled())


@pytest.mark.parametrize("seed", range(8))
async def test_a_random_history_is_the_same_everywhere(store: Store, reference: Store, seed: int) -> None:
    sides = [Side(each, await worker(each)) for each in (store, reference)]
    play = Play(random.Random(seed), sides)
    told = []
    for _ in range(STEPS):
        told.append(await play.step())
        mine, theirs = [await side.seen() for side in sides]
        assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == [], told[-8:]
