"""What every engine must do with limits: core/limits.py, core/lanes.py."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.limits import Bounds, GroupInfo, LineChange, LineDeclaration, LineInfo


class LimitStore(Protocol):
    """Lines, lanes, and what stands over them.

    A new job with a `lane` (NewJob.lane: core/lanes.py `lane_name`) enters that lane of its queue, which is made if it is not
    there. `JobStore.report_and_claim` takes jobs of lanes beside the others of a queue, by `core.lanes.deal` and `settle`:
    never more at once, and never more starts in any time of a rate's length, than every limit over the lane allows, counted in
    claims by the store's clock at the time of writing. A lane whose line was never declared gives nothing: its limits are not
    known yet.
    The room of a job goes back in the step that ends its run, whatever does (outcome, release, death of its instance), and room
    that is made where jobs wait wakes workers. Plain jobs of a queue, and each of its lines, take turns.
    """

    async def declare(self, lines: Sequence[LineDeclaration], version: int) -> None:
        """Store policies that code declares, those of a higher or the same `version` in the place of older ones. What people
        have set stays. Lanes take new limits at once when they are lowered (no run is revoked: `running` may exceed the limit
        for a while); where limits are raised, waiting lanes are woken in pieces by this call. A line that gets or loses its
        order keeps its jobs."""
        ...

    async def change(self, queue: str, line: str, change: LineChange | None, *, by: str, reason: str) -> bool:
        """Set limits by hand; None: back to what is declared. False: there is no such line."""
        ...

    async def change_group(
        self, queue: str, line: str, group: str, *, bounds: Bounds | None, weight: int | None
    ) -> bool:
        """Set an exception for one group, or take it back (None, None). False: there is no such line."""
        ...

    async def list_lines(self) -> list[LineInfo]:
        """All lines, by queue and name."""
        ...

    async def list_groups(
        self, queue: str, line: str, *, after: str | None = None, limit: int = 100
    ) -> list[GroupInfo]:
        """Groups of a line by name, from the first after `after`."""
        ...

    async def find_groups(self, lanes: Sequence[tuple[str, str]]) -> list[GroupInfo | None]:
        """Lanes by queue and NewJob.lane; None: there is none now."""
        ...

    async def busiest_groups(self, limit: int) -> list[GroupInfo]:
        """The groups with the most running jobs, and of those with none the ones that wait longest; for metrics and pages."""
        ...

    async def sweep(self, idle_before: int, limit: int) -> tuple[int, int]:
        """Delete lanes without jobs, recent starts and exceptions that were last used before `idle_before`; and compare the
        counts of up to `limit` lanes and of all lines with the jobs that run, correcting what has drifted. Returns how many
        were deleted, and how many corrected."""
        ...
