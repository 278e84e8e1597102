"""A job's life: what every engine must do with jobs."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.claim import ClaimRef, ClaimRequest, ClaimResult, Outcome
from drumbeat.core.job import AddResult, CancelAnswer, EndedJob, NewJob, ReplayResult
from drumbeat.ids import InstanceId, JobId


class JobStore(Protocol):
    """A job's life. Bulk operations lock rows in the order of ids."""

    async def add(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        """Store jobs, all or none, in one transaction; durable when it returns. One answer for each, in order.

        An id that exists anywhere (live, history, dead letter) is not stored again: `created` is False and its id is
        returned, so repeating a call whose answer was lost is harmless. A unique job whose task and key are held by a
        live unique job (Unique.LIVE: pending or running; Unique.PENDING: pending only) is not stored: the holder's id is
        returned. Two of one call may collide with each other likewise. Only unique jobs collide. Wakes workers.

        Raises:
            StoreFull: nothing was stored, there is no room.
        """
        ...

    async def report_and_claim(
        self, instance: InstanceId, outcomes: Sequence[Outcome], request: ClaimRequest | None
    ) -> ClaimResult:
        """Record how claims ended, and claim the next jobs, in one transaction. One verdict for each outcome.

        Called by the instance that holds the claims. An outcome counts only if the job is running under this instance with
        this token. Else it is ALREADY if history, the dead letters or an attempt has this very outcome of that (id, token) by
        the same instance, else STALE, which is counted in the instance's `refused`; neither changes the job. (A burial is on
        record as a crash: the late result of an instance that was buried is STALE.) SUCCEEDED and CANCELLED move the job to
        history; DEAD, and CRASHED at crash_limit, to the dead letters together with `follow_up`; others make it pending again,
        but if its cancellation was requested it is CANCELLED instead. Each ended run that had started and is not the job's
        last is kept as an Attempt; the last one is in the history row itself. RELEASED and PARKED without started_at leave no
        attempt.

        Claims: for each queue of `claim` that is not paused, pending jobs with run_at <= now that wait for nothing, by
        priority, then run_at, then id. Each gets token = max(last token + 1, now in µs). A buried or unknown instance gets
        no jobs. When nothing is due, nothing is written. But a claim that found nothing may stand (ClaimResult.parked_claim), if its
        instance holds nothing and this store listens with `given` (Wake.listen): whoever adds jobs that are due may then answer
        it with these, in place of a hint. It is answered once, or withdrawn by the next claim of its instance.
        """
        ...

    async def list_running(self, instance: InstanceId) -> list[ClaimRef]:
        """All jobs that the store believes are running under this instance."""
        ...

    async def save_progress(self, instance: InstanceId, notes: Sequence[tuple[ClaimRef, str]]) -> None:
        """Keep the progress (JSON text) of running jobs. Stale ones are passed over."""
        ...

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        """Cancel jobs. A pending one becomes history at once and never runs; a running one is asked to stop."""
        ...

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> list[CancelAnswer]:
        """Cancel all live jobs of this task with one of these keys, atomically against claims. One answer for each job."""
        ...

    async def run_now(self, ids: Sequence[JobId]) -> int:
        """Make pending jobs due now. Others are passed over. Wakes workers. Returns how many."""
        ...

    async def replay(self, ids: Sequence[JobId]) -> list[ReplayResult]:
        """Give dead letters a new life under the same id: life + 1, failures and crashes 0, due now; attempts stay on record.

        Atomic for each id. Refused for one whose unique key a live job holds. Wakes workers.
        """
        ...

    async def discard(self, ids: Sequence[JobId]) -> int:
        """Move dead letters to history, as dead. Returns how many there were."""
        ...

    async def get_results(self, ids: Sequence[JobId]) -> list[EndedJob | None]:
        """How these jobs ended; None for one that is still live.

        Raises:
            JobNotFound: for the first id that is nowhere and cannot have been pruned.
            JobExpired: for the first id that is nowhere, but is so old that its history may have been pruned.
        """
        ...

    async def expire_blocked(self, prefix: str, before: int, limit: int) -> int:
        """Make dead letters (with their follow-ups) of jobs whose blocked_on begins with prefix since before `before`."""
        ...

    async def prune(self, before: int, limit: int) -> int:
        """Delete history that finished before `before`, oldest first, with its attempts; at most `limit`. Returns how many."""
        ...

    async def pause_queue(self, queue: str, *, by: str, reason: str) -> None:
        """No claim gives a job of this queue from now on. Harmless when paused already."""
        ...

    async def resume_queue(self, queue: str) -> bool:
        """Undo pause. False if it was not paused. Wakes workers."""
        ...
