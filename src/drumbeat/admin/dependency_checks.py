"""What the doctor finds about jobs that depend on others: wrong counts of open parents, and dead letters that others wait for
and nobody decides on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from drumbeat.core.dependencies import BLOCKED_ON_PARENTS, Miscount
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.core.job import Job, JobState
from drumbeat.durations import format_length, to_us
from drumbeat.ids import JobId
from drumbeat.plural import format_count
from drumbeat.store.protocol import Store

CHECK_NAME = "dependencies"
MAX_LETTER_AGE_US = 24 * 3_600_000_000
MAX_PARENTS_READ = 20
"""Of each waiting job, open ones first."""
MAX_NAMED = 5
_PAGE = 100
"""Jobs whose parents are read at once."""


class AwaitedLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter that jobs wait for."""

    id: JobId
    task: str
    died_at: int
    waiting: int
    """How many jobs wait for it, among those that were examined."""


class DependencySample(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks look at."""

    miscounts: Sequence[Miscount] = ()
    letters: Sequence[AwaitedLetter] = ()


async def read_dependencies(store: Store, waiting: Sequence[Job], limit: int) -> DependencySample:
    """`waiting`: some of the jobs that wait for something other than time."""
    ids = [job.id for job in waiting if job.blocked_on == BLOCKED_ON_PARENTS]
    awaited: Counter[JobId] = Counter()
    for first in range(0, len(ids), _PAGE):
        links = await store.dependencies.list_parents(ids[first : first + _PAGE], MAX_PARENTS_READ)
        awaited.update(
            each.id for some in links.values() for each in some if each.is_open and each.state is JobState.DEAD
        )
    found = [id for id, _ in awaited.most_common(_PAGE)]
    letters = await store.inspect.get_jobs(found, preview=0) if found else {}
    return DependencySample(
        miscounts=await store.dependencies.find_miscounted(limit),
        letters=[
            AwaitedLetter(id=id, task=letter.task, died_at=to_us(letter.finished_at), waiting=awaited[id])
            for id, letter in letters.items()
            if letter.finished_at is not None and letter.state is JobState.DEAD
        ],
    )


def check_dependencies(sample: DependencySample, now: int) -> Iterator[HealthCheck]:
    old = sorted(
        (each for each in sample.letters if now - each.died_at > MAX_LETTER_AGE_US), key=lambda each: each.died_at
    )
    for letter in old[:MAX_NAMED]:
        waits = "1 job waits" if letter.waiting == 1 else f"{letter.waiting:,} jobs wait"
        yield HealthCheck(
            name=f"dead letter {letter.id}",
            level=HealthLevel.WARN,
            value=f"{waits} for this dead letter (task {letter.task}), which died {format_length(now - letter.died_at)} ago",
            advice=f"`drumbeat dead replay {letter.id}` lets them go on; `drumbeat dead discard {letter.id}` cancels them",
        )
    if len(old) > MAX_NAMED:
        yield HealthCheck(
            name=CHECK_NAME,
            level=HealthLevel.WARN,
            value=f"{format_count(len(old) - MAX_NAMED, 'older dead letter')} more that jobs wait for",
            advice="`drumbeat jobs list --state waiting` lists those jobs, `drumbeat explain ID` what each waits for",
        )
    yield from map(_describe_miscount, sample.miscounts[:MAX_NAMED])
    if len(sample.miscounts) > MAX_NAMED:
        yield HealthCheck(
            name=CHECK_NAME,
            level=HealthLevel.BAD,
            value=f"{format_count(len(sample.miscounts) - MAX_NAMED, 'job')} more with a wrong count of open parents",
            advice="see those above",
        )


def _describe_miscount(found: Miscount) -> HealthCheck:
    return HealthCheck(
        name=f"job {found.id}",
        level=HealthLevel.BAD,
        value=f"it counts {format_count(found.counted, 'open parent')}, and has {found.actual:,}",
        advice="it would start too late, too early or never, and this should not happen: please report it. "
        f"`drumbeat jobs show {found.id}` lists its parents; cancel it, and enqueue it again",
    )
