"""Every outcome of every kind of running job, and every late outcome."""

from typing import NamedTuple

from drumbeat.core.job import OutcomeKind
from tests.contract.cases import all_of

CRASH_LIMIT = 3
BLOCKED_ON = "task:strange"


class OutcomeCase(NamedTuple):
    kind: OutcomeKind
    has_started_at: bool
    has_finished_at: bool
    has_error: bool
    cancel_requested: bool
    crashes: int
    was_blocked: bool
    runs_early: bool
    """run_at is in the future, though it runs: a clock was set back."""


OUTCOME_CASES = [
    OutcomeCase(*values)
    for values in all_of(
        OutcomeKind,
        *[(False, True)] * 4,
        (0, CRASH_LIMIT - 2, CRASH_LIMIT - 1),
        *[(False, True)] * 2,
    )
]


class LateCase(NamedTuple):
    kind: OutcomeKind
    recorded: OutcomeKind | None
    """None: the claim was released before it started, which leaves nothing on record."""
    same_instance: bool
    same_token: bool


LATE_CASES = [LateCase(*values) for values in all_of(OutcomeKind, (*OutcomeKind, None), *[(False, True)] * 2)]
