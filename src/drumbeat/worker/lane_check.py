"""Which claimed jobs belong under other limits than those that they were claimed under, by the code of this worker.

A job was enqueued before the deploy that gave its task or queue a policy, by a program without the task's code, by an older
schedule, as the on_dead job of a store: it is in no lane, or in one of another line. It must not run beside the limits, so it
is released into the lane where it belongs, uncharged.

A job that is in a lane although this code has no policy for it is run: its limits were kept when it was claimed. So is one
whose line a newer version of the program declares otherwise, so that two versions never pass a job to and fro.
"""

import logging
from collections.abc import Sequence
from typing import Any

from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.job import OutcomeKind
from drumbeat.core.lanes import lane_name, split_lane
from drumbeat.tasks import Registry, Task
from drumbeat.tasks.limits import compute_group
from drumbeat.tasks.line_policies import LineView, find_line

log = logging.getLogger(__name__)


class LaneCheck:
    def __init__(self, registry: Registry, lines: LineView) -> None:
        self._registry = registry
        self._lines = lines
        self._is_needed = bool(registry.queue_policies) or any(task.options.policy for task in registry)

    def is_limited(self, job: ClaimedJob) -> bool:
        """Whether it is to start before others that were claimed with it: it was claimed for a free slot."""
        return bool(job.lane) and self._lines.is_limited(job.queue, job.lane)

    def find_misplaced(self, jobs: Sequence[ClaimedJob]) -> list[Outcome]:
        """The outcomes of those that belong into another lane."""
        if not self._is_needed:
            return []
        found = []
        for job in jobs:
            lane = self._find_lane(job)
            if lane is not None:
                found.append(Outcome(id=job.id, token=job.token, kind=OutcomeKind.RELEASED, lane=lane))
        return found

    def _find_lane(self, job: ClaimedJob) -> str | None:
        """The lane where a job belongs; None: it may run."""
        task = self._registry.find(job.task)
        line = None if task is None else find_line(task, job.queue)
        if task is None or line is None:
            return None
        if job.lane and (split_lane(job.lane)[0] == line or self._lines.is_outdated(job.queue, line)):
            return None
        return lane_name(line, job.group or _group_of(task, job))


def _group_of(task: Task[..., Any], job: ClaimedJob) -> str:
    """The group that its program would have given to a job that has none; '' if its arguments do not tell."""
    group = task.options.group
    if group is None or isinstance(group, str):
        return group or ""
    try:
        return compute_group(task.name, group, *task.signature.decode(job.args))
    except Exception as error:  # of another version, results of parents in it, or the program's own mistake
        log.warning(
            "the group of a job cannot be computed", extra={"job": job.id, "task": job.task, "reason": str(error)}
        )
        return ""
