"""What every engine must do with jobs."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.claim import ClaimRef, ClaimRequest, ClaimResult, Outcome
from drumbeat.core.job import AddResult, CancelAnswer, EndedJob, NewJob, ReplayResult
from drumbeat.ids import InstanceId, JobId


class JobStore(Protocol):
    """Jobs from enqueue to the end of their history. Bulk operations lock rows in the order of ids."""

    async def add(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        """Store jobs, all or none, in one transaction; durable when it returns. One result for each, in order.

        An id that exists anywhere (live, history, dead letter) is not stored again: `created` is False and its id is
        returned, so repeating a call whose answer was lost is harmless. A unique job whose task and key are held by a
        live unique job (Unique.LIVE: pending or running; Unique.PENDING: pending only) is not stored: the holder's id
        is returned. Two jobs of one call may collide with each other likewise. Only unique jobs collide. Wakes workers.

        Raises:
            StoreFull: nothing was stored, there is no space.
        """
        ...

    async def report_and_claim(
        self, instance: InstanceId, outcomes: Sequence[Outcome], request: ClaimRequest | None
    ) -> ClaimResult:
        """Record how claims ended, and claim the next jobs, in one transaction. One WriteStatus for each outcome.

        Called by the instance that holds the claims. An outcome is APPLIED only if the job is running under this
        instance with this token. Otherwise it is DUPLICATE if history, the dead letters or an attempt has this very
        outcome of that (id, token) by the same instance, else STALE, which is counted in the instance's `refused`;
        neither changes the job. (The death of an instance is recorded as a crash: a late result of it is STALE.)
        SUCCEEDED (with `follow_up`) and CANCELLED move the job to history; DEAD, and CRASHED at crash_limit, to the dead
        letters, with `follow_up`; other outcomes make it pending again, and wake workers, but if its cancellation was
        requested it is CANCELLED instead. Each ended run that had started and is not the job's last is kept as an Attempt; the
        last one is in the history row itself. RELEASED and BLOCKED without started_at leave no attempt: so claims that
        never started are given back, unharmed.

        Claims: for each queue of `request` that is not paused, pending jobs with run_at <= now that are not blocked, by
        priority, then run_at, then id. Each gets token = max(last token + 1, now in µs). A dead or unknown instance
        gets no jobs. When nothing is due, nothing is written; but the claim may be parked (ClaimResult.parked_claim),
        if the instance holds no jobs and this store is listened to with `on_handoff` (Wake.listen): whoever adds jobs
        that are due may then answer it with them instead of a hint. It is answered once, or withdrawn by the next claim
        of its instance.
        """
        ...

    async def list_running(self, instance: InstanceId) -> list[ClaimRef]:
        """All claims that the store believes this instance holds."""
        ...

    async def save_progress(self, instance: InstanceId, notes: Sequence[tuple[ClaimRef, str]]) -> None:
        """Store the progress (JSON text) of running jobs. Stale claims are ignored."""
        ...

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        """Cancel jobs. A pending job moves to history at once and never runs; a running one is asked to stop."""
        ...

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> list[CancelAnswer]:
        """Cancel all live jobs of this task with one of these keys, atomically against claims. One answer for each job."""
        ...

    async def run_now(self, ids: Sequence[JobId]) -> int:
        """Make pending jobs due now, also those that sleep: their sleep ends on record. Others are ignored, and so are jobs
        that wait for a signal (`Job.suspended`) or for parents. Wakes workers. Returns how many."""
        ...

    async def replay(self, ids: Sequence[JobId]) -> list[ReplayResult]:
        """Make dead letters pending again under the same id: replays + 1, failures and crashes 0, due now; attempts are
        kept. Its children that its death cancelled wait again, replays + 1 (EdgeEffect.REVIVE), unless their unique key is
        held, a person cancelled them or their workflow, or another parent cancels them; with the same call, or by
        `DependencyStore.advance`.
        Their open parents are judged anew by `judge_edge`; one that is pruned counts as met. One that another parent cancels
        is from then on a child that this other one cancelled: it waits again as soon as no parent cancels it any more.

        Atomic for each id. Refused for a job whose unique key a live job holds. Wakes workers.
        """
        ...

    async def discard(self, ids: Sequence[JobId]) -> int:
        """Move dead letters to history, as dead. Returns how many there were."""
        ...

    async def get_results(self, ids: Sequence[JobId]) -> list[EndedJob | None]:
        """How these jobs ended; None for one that is still live.

        Raises:
            JobNotFound: for the first id that does not exist and cannot have been pruned.
            JobExpired: for the first id that does not exist, but is so old that its history may have been pruned.
        """
        ...

    async def expire(self, limit: int) -> int:
        """Move pending jobs, blocked or not, whose expires_at has passed to history as EXPIRED; at most `limit`. Returns how
        many. Only jobs that have not failed, crashed or been replayed: see `transitions.has_expired`, by which a worker
        judges what it claims. This sweep is for what nobody claims."""
        ...

    async def expire_blocked(self, prefix: str, before: int, limit: int) -> int:
        """Make dead letters, with their follow-ups, of jobs that are blocked on something with this prefix since before
        `before`."""
        ...

    async def prune(self, before: int, limit: int) -> int:
        """Delete history that finished before `before`, oldest first, with its attempts; at most `limit`. Returns how
        many."""
        ...

    async def pause_queue(self, queue: str, *, by: str, reason: str) -> None:
        """From now on no claim returns jobs of this queue. Harmless when it is paused already."""
        ...

    async def resume_queue(self, queue: str) -> bool:
        """Undo pause. False if it was not paused. Wakes workers."""
        ...
