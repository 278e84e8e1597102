"""What every engine must do with workflows."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.workflow import Workflow, WorkflowGraph
from drumbeat.ids import JobId


class WorkflowStore(Protocol):
    """Workflows (`core.workflow`). They are stored by `DependencyStore.add`, and pruned with the history of their last job."""

    async def get(self, ids: Sequence[str]) -> dict[str, Workflow]:
        """Those of these workflows (at most 100) that exist, with their counts: of at most MAX_COUNTED_NODES jobs each, live
        ones first; on Redis of the first and the last of them."""
        ...

    async def find(self, *, name: str | None = None, before: str | None = None, limit: int = 50) -> list[Workflow]:
        """The newest workflows, by id, at most `limit` (100), of this name and with smaller ids than `before`; with counts."""
        ...

    async def get_graph(self, id: str) -> WorkflowGraph | None:
        """Its jobs by id and their edges: up to MAX_GRAPH_NODES one by one, more of them by task. None: it does not exist."""
        ...

    async def list_job_ids(self, id: str, *, after: JobId | None = None, limit: int = 1_000) -> list[JobId]:
        """The ids of its jobs, live or ended, in order."""
        ...

    async def list_sinks(self, id: str, limit: int = 2) -> list[JobId]:
        """The ids of its jobs that no other job waits for, in order."""
        ...

    async def mark_cancelled(self, id: str) -> bool:
        """From now on nothing that waits for parents becomes due in it, and nothing is added to it. Its other jobs are left
        as they are: the caller cancels them. True also if it was cancelled before; False: it does not exist."""
        ...
