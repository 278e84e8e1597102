"""Every end of a schedule's job, and what it makes of the next fire."""

from typing import NamedTuple

from drumbeat.core.job import OutcomeKind
from drumbeat.core.schedule import ScheduleState
from tests.contract.cases import all_of


class IntervalCase(NamedTuple):
    is_interval: bool
    has_successor: bool
    """Another job is queued behind the one that ends."""
    state: ScheduleState
    end: str
    """The schedule ends "before" or "after" the fire that would be next; "": never."""
    outcome: OutcomeKind
    is_late: bool
    """The outcome is reported a minute after the run finished."""


INTERVAL_CASES = [
    IntervalCase(*values)
    for values in all_of(
        (False, True),
        (False, True),
        ScheduleState,
        ("", "before", "after"),
        (OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED),
        (False, True),
    )
]
