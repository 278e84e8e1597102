"""What every engine must do with the audit log."""

from typing import Protocol

from drumbeat.core.audit import ALL_ENTRIES, REQUEST_KEY_TTL_US, AuditEntry, AuditFilter, NewAuditEntry


class AuditStore(Protocol):
    """The audit log: what people did, to how many jobs, and why. An entry is begun before the action and ended after
    it."""

    async def begin(self, act: NewAuditEntry, *, within_us: int = REQUEST_KEY_TTL_US) -> AuditEntry | None:
        """Record an action before it is done. None: recorded, go ahead.

        If the same `who` began another action with this request_key within the last `within_us` microseconds by the
        store's clock, nothing is written and that entry is returned: it is the same request, sent again. Of many at
        once with the same key one begins. A second call with the same id changes nothing and returns None. Works on a
        full store as far as the engine can: what frees space must be possible.
        """
        ...

    async def report_progress(self, id: str, *, touched: int, matched: int | None) -> str | None:
        """Record how far a running action has come (`touched` of `matched`), and that its process lives. Returns who asked
        it to stop; None: nobody did, or it has ended or is unknown, which changes nothing."""
        ...

    async def request_stop(self, id: str, by: str) -> bool:
        """Ask an action to stop: its process learns it with its next report. The first request counts. False, and nothing
        is changed, unless it has reported its progress and has not ended."""
        ...

    async def end(self, id: str, *, touched: int, outcome: str, answer: str | None) -> None:
        """Record how the action ended: done, refused or failed. The first call counts; an unknown id is ignored.

        An answer longer than MAX_ANSWER_BYTES is not kept.
        """
        ...

    async def get(self, id: str) -> AuditEntry | None: ...

    async def list_page(self, query: AuditFilter = ALL_ENTRIES) -> list[AuditEntry]:
        """Newest first by id."""
        ...

    async def prune(self, before: int, limit: int) -> int:
        """Delete entries begun before this time, oldest first, at most `limit`. Returns how many."""
        ...
