"""What the engines share about steps of jobs. Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from drumbeat.core.claim import WriteStatus
from drumbeat.core.signals import SignalRecord
from drumbeat.core.step import NewStep, StepRecord
from drumbeat.ids import JobId


def to_statuses(steps: Sequence[NewStep], current: Collection[tuple[JobId, int]]) -> list[WriteStatus]:
    """APPLIED for each step whose claim is current, else STALE."""
    claims = [(step.claim.id, step.claim.token) for step in steps]
    return [WriteStatus.APPLIED if claim in current else WriteStatus.STALE for claim in claims]


R = TypeVar("R", StepRecord, SignalRecord)


def group_by_job(ids: Iterable[JobId], records: Iterable[R]) -> dict[JobId, list[R]]:
    """The records of each of these jobs, in their order."""
    found: dict[JobId, list[R]] = {id: [] for id in ids}
    for record in records:
        found[record.job].append(record)
    return found
