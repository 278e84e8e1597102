"""What every engine must do with dependencies between jobs."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.dependencies import GraphAnswer, Miscount, NewGraph, ParentLink, ParentResult
from drumbeat.ids import JobId

MAX_BOUND_PARENTS = 1_000
"""Parents whose results one argument can hold; more are read in pages."""


class DependencyStore(Protocol):
    """Edges between jobs (`core.dependencies`). An edge is stored with its child and pruned with its child's history; results
    that are kept for children are pruned with the last edge that binds them."""

    async def add(self, graph: NewGraph) -> GraphAnswer:
        """Store jobs and their edges, all or none, in one transaction; durable when it returns. Wakes workers.

        As `JobStore.add` for each job: an id that exists anywhere is answered with `created` False, and nothing is looked up
        for it, its edges included; so a repeated call is harmless, also when parents were pruned meanwhile. A unique job whose
        key is held is answered with its holder, and its edges are not stored.

        The parents of new jobs are judged by `judge_edge`, those that are live in the same transaction that keeps them from
        ending unnoticed (rows are locked first, in the order of ids; ended ones are looked for in a later statement). A child
        with open parents is pending, blocked on BLOCKED_ON_PARENTS, and counts them in `open_parents`. One with none is due as
        any new job. One that a failed parent cancels goes to history at once, CANCELLED with `parent_failure`, and so do its
        own children of this call. Results of parents that have ended are kept for children that bind them.

        With `instance` and `step`, all of it is stored only while the job of step.claim runs under this instance with this
        token, together with the record of the step; see `GraphAnswer.status`. `jobs` and `edges` may be empty then.

        Raises:
            JobNotFound, JobExpired: a parent does not exist, or no longer; nothing was stored.
            UniqueConflict: a live job holds the unique key of a job that another one of this call waits for, or of any job of a
                graph with `workflow` or `step`; nothing was stored.
            WorkflowError: `workflow` is new, and a job is stored already, by itself or in another; nothing was stored.
            WorkflowConflict: workflow.unique, and another of its name is live; nothing was stored.
            WorkflowCancelled: a new job names a workflow that was cancelled; nothing was stored.
            WorkflowNotFound: a new job names a workflow that does not exist; nothing was stored.
            StoreFull: nothing was stored, there is no space.
        """
        ...

    async def advance(self) -> bool:
        """Follow edges of parents that have ended, at most MAX_ADVANCED, in one transaction; return whether there are more.

        Anybody may call it, at any time; several calls at once do not disturb each other. What an end does is `edge_effect`. A
        child that is met for the last time is due at max(run_at, now), not blocked any more, unless its workflow was cancelled:
        then it goes to history, CANCELLED with WORKFLOW_CANCELLED. A child that is cancelled goes to history with
        `parent_failure`; it is a parent that ended, with a release of its own, so that a long chain is cancelled in steps. A
        child that has ended already is left alone. Wakes workers.

        Every operation that ends a job which has children leaves a release in the same step: report_and_claim, cancel,
        cancel_keys, expire, expire_blocked, discard, declare_dead, schedules that cancel, `Transactional.complete`. All but the
        last then advance by themselves: report_and_claim once (what becomes due can be claimed by this very call;
        ClaimResult.is_releasing: there is more), the others until nothing is left.

        It also looks at signals that were sent in programs' own transactions, and which their commit could not follow
        (`Transactional.send_signal`).

        `JobStore.replay` of a dead letter makes the children wait again that were cancelled by its death: see there.
        """
        ...

    async def load_results(self, ids: Sequence[JobId]) -> dict[JobId, list[ParentResult]]:
        """What these jobs (at most 1,000) get of their parents: for each that binds any, in the order of its edges, at most
        MAX_BOUND_PARENTS of Binding.RESULT and OUTCOME, and the first of RESULTS only (which are read by `page_results`). Jobs
        that bind nothing have no entry."""
        ...

    async def page_results(self, child: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        """The results that one argument of this job gets, by place, from the first place that is greater than `after`."""
        ...

    async def list_parents(self, ids: Sequence[JobId], limit: int) -> dict[JobId, list[ParentLink]]:
        """The parents of each of these jobs (at most 100), open ones first, then by place; at most `limit` for each. Every id
        has an entry."""
        ...

    async def list_children(self, ids: Sequence[JobId], limit: int) -> dict[JobId, list[ParentLink]]:
        """The children of each of these jobs (at most 100) by id, at most `limit` for each. Every id has an entry."""
        ...

    async def find_miscounted(self, limit: int = 1_000) -> list[Miscount]:
        """Waiting jobs whose `open_parents` is not the number of their parents by `judge_edge`, among at most `limit` waiting
        jobs; none while releases are left."""
        ...
