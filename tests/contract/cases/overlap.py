"""Every fire of a schedule, whatever became of its job before."""

from typing import NamedTuple

from drumbeat.core.schedule import Overlap
from tests.contract.cases import all_of


class OverlapCase(NamedTuple):
    overlap: Overlap
    live: str
    """The state of its current job: "pending", "running"; "": that one has ended."""
    fires: int
    has_waiting: bool
    """Another job is queued behind the current one."""
    is_interval: bool
    advances: bool
    is_known: bool
    """The first of the fires is on record already."""


OVERLAP_CASES = [
    case
    for values in all_of(Overlap, ("", "pending", "running"), (0, 1, 2), *[(False, True)] * 4)
    # Where the current job has ended, one that waited is the current job.
    if (case := OverlapCase(*values)).live or not case.has_waiting
]
