"""What outcomes mean on every engine: which of them bring a job back, which the stores make themselves, which are the same.

Values only; what becomes of the rows is in `ending.py` of an engine.
"""

from collections.abc import Iterable
from typing import Protocol

from drumbeat.core.claim import Outcome
from drumbeat.core.job import Failure, NewJob, OutcomeKind
from drumbeat.ids import JobId

REQUEUING = frozenset(
    {OutcomeKind.RETRY, OutcomeKind.SNOOZED, OutcomeKind.RELEASED, OutcomeKind.BLOCKED, OutcomeKind.CRASHED}
)
"""These make the job pending again, unless somebody wants it cancelled."""
UNCHARGED = frozenset({OutcomeKind.RELEASED, OutcomeKind.BLOCKED})


class RunningClaim(Protocol):
    """What an engine knows of a claim that has not ended."""

    @property
    def id(self) -> JobId: ...

    @property
    def token(self) -> int: ...

    @property
    def claimed_at(self) -> int: ...


def is_same_outcome(kind: OutcomeKind, recorded: str | None) -> bool:
    """Whether what is on record is this outcome. The burial of an instance is on record too, as a crash: to the instance
    that comes back from it, its late result is stale."""
    return recorded == kind.value or (recorded == OutcomeKind.CANCELLED.value and kind in REQUEUING)


def released_outcomes(claims: Iterable[tuple[JobId, int]]) -> list[Outcome]:
    """Outcomes of claims that never started."""
    return [Outcome(id=id, token=token, kind=OutcomeKind.RELEASED) for id, token in claims]


def crashed_outcome(held: RunningClaim, reason: str, follow_up: NewJob | None = None) -> Outcome:
    """The outcome of a run whose instance died under it."""
    return Outcome(
        id=held.id,
        token=held.token,
        kind=OutcomeKind.CRASHED,
        started_at=held.claimed_at,
        error=crash_failure(reason),
        follow_up=follow_up,
    )


def crash_failure(reason: str) -> Failure:
    return Failure(type="WorkerCrashed", message=reason)
