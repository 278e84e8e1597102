"""The record of what people did: what every engine must do with it."""

from typing import Protocol

from drumbeat.core.audit import ALL_ENTRIES, REQUEST_KEY_TTL_US, AuditEntry, AuditFilter, NewAuditEntry


class AuditStore(Protocol):
    """What was done, by whom, to how many, and why. An act is begun here before it is done, and ended after."""

    async def begin(self, act: NewAuditEntry, *, within_us: int = REQUEST_KEY_TTL_US) -> AuditEntry | None:
        """Put an act on record; None: it is, and may be done now.

        With a request_key under which the same `who` began another act in the last `within` microseconds by the store's
        clock, nothing is written, and that one is given: it is the same request, sent again. Of many at once with the same key
        one begins. A second call with the same id changes nothing and gives None. Works on a store that is full, as far as the
        engine can: what makes room must be possible.
        """
        ...

    async def end(self, id: str, *, touched: int, outcome: str, answer: str | None) -> None:
        """It was done, refused or failed. The first call counts; an id that is not on record is passed over.

        An answer of more than MOST_ANSWER bytes is not kept.
        """
        ...

    async def get(self, id: str) -> AuditEntry | None: ...

    async def list_page(self, query: AuditFilter = ALL_ENTRIES) -> list[AuditEntry]:
        """Newest first by id."""
        ...

    async def prune(self, before: int, limit: int) -> int:
        """Delete acts that were begun before this moment, oldest first, at most `limit`. Returns how many."""
        ...
