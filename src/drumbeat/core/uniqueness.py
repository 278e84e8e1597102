"""Unique keys: which live job makes a new one of the same task and key unnecessary. Pure.

The SQL engines load the holders of the keys in question (locked, in the transaction) and decide here. Redis decides inside
`lua/_uniqueness.lua` and `lua/add_jobs.lua`. The test tests/contract/test_rules_uniqueness.py compares every engine with these
functions over all combinations.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from drumbeat.core.job import AddResult, JobState, NewJob, ReplayResult, Unique
from drumbeat.core.transitions import HeldJob
from drumbeat.ids import JobId


class KeyedRow(msgspec.Struct, frozen=True, array_like=True):
    id: JobId
    task: str
    key: str | None
    unique: str


KeyedJob = NewJob | KeyedRow | HeldJob
"""A job that may have a unique key."""


class UniqueKeys:
    """Which live unique jobs hold which (task, key), including those that this transaction adds."""

    def __init__(self, holders: Iterable[tuple[str, str, JobId, str]] = ()) -> None:
        """`holders`: task, key, id and state of each."""
        self._holders: dict[tuple[str, str], list[tuple[JobId, str]]] = {}
        for task, key, id, state in holders:
            self._holders.setdefault((task, key), []).append((id, state))

    def find_holder(self, job: KeyedJob) -> JobId | None:
        """The job that makes this one unnecessary, the smallest id of several. For Unique.PENDING only pending ones count."""
        if job.key is None or not job.unique:
            return None
        found = self._holders.get((job.task, job.key), ())
        return min((id for id, state in found if job.unique == Unique.LIVE or state == JobState.PENDING), default=None)

    def take(self, job: KeyedJob) -> None:
        """From now on this job, which is pending, holds its key."""
        if job.key is not None and job.unique:
            self._holders.setdefault((job.task, job.key), []).append((job.id, JobState.PENDING))


def unique_keys(jobs: Iterable[KeyedJob]) -> list[tuple[str, str]]:
    """The (task, key) whose holders must be known to decide about these jobs."""
    return list(dict.fromkeys((job.task, job.key) for job in jobs if job.unique and job.key is not None))


def select_new(
    jobs: Sequence[NewJob], known: Collection[JobId], keys: UniqueKeys
) -> tuple[list[AddResult], list[NewJob]]:
    """The result of each job, and those to be stored. `known`: the ids that exist already."""
    seen = set(known)
    results, new = [], []
    for job in jobs:
        holder = job.id if job.id in seen else keys.find_holder(job)
        results.append(AddResult(holder or job.id, holder is None))
        if holder is None:
            seen.add(job.id)
            keys.take(job)
            new.append(job)
    return results, new


def select_replays(
    ids: Iterable[JobId], dead_letters: Mapping[JobId, KeyedJob], keys: UniqueKeys
) -> tuple[list[ReplayResult], list[JobId]]:
    """The result for each id, and those to be replayed: not where a live job holds the unique key."""
    left = dict(dead_letters)
    results, chosen = [], []
    for id in ids:
        letter = left.pop(id, None)
        holder = None if letter is None else keys.find_holder(letter)
        replayed = letter is not None and holder is None
        if letter is not None and replayed:
            keys.take(letter)
            chosen.append(id)
        results.append(ReplayResult(id, replayed, holder))
    return results, chosen


def returning_keys(jobs: Iterable[KeyedJob]) -> list[tuple[str, str]]:
    """The (task, key) whose holders must be known when these jobs become pending again."""
    return unique_keys(job for job in jobs if job.unique == Unique.PENDING)


def unique_after_return(jobs: Iterable[KeyedJob], keys: UniqueKeys) -> list[str]:
    """`unique` of jobs that become pending again: one of Unique.PENDING whose key was taken while it ran is not unique."""
    kept = []
    for job in jobs:
        if job.unique != Unique.PENDING:
            kept.append(str(job.unique))
        elif keys.find_holder(job) is not None:
            kept.append("")
        else:
            keys.take(job)
            kept.append(Unique.PENDING.value)
    return kept
