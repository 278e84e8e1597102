"""`app.locks`: the locks of the cluster, their holders and waiters, and release by force."""

from __future__ import annotations

import builtins

from drumbeat.core.lock import LockInfo
from drumbeat.errors import InvalidArguments
from drumbeat.names import check_name

from .part import AdminPart, check_note

PAGE = 500


class Locks(AdminPart):
    """List and show locks, and release them by force."""

    async def list(self, *, all: bool = False) -> builtins.list[LockInfo]:
        """Every lock with holders or waiters, by name; with `all` also those used in the last day."""
        store = await self._client.store()
        found: builtins.list[LockInfo] = []
        while page := await store.locks.list_page(after=found[-1].name if found else "", limit=PAGE, all=all):
            found += page
            if len(page) < PAGE:
                break
        return found

    async def show(self, name: str) -> LockInfo:
        """One lock with its holders, and its waiters in their order."""
        store = await self._client.store()
        found = await store.locks.get(check_name("lock", name))
        if found is None:
            raise InvalidArguments(f"there is no lock {name!r}: it has not been used for a day", "name")
        return found

    async def release(self, name: str, ticket: str | None = None, *, reason: str, by: str | None = None) -> int:
        """Take the lock from all its holders, or only this ticket. Returns the number of released tickets.

        Holders are notified within milliseconds, as of any lost lock; until then they work on, and only the token rejects their
        late writes. `by` and `reason` are shown with the lock; `by` defaults to the name of the app.
        """
        by, reason = self._check_by(by), check_note("reason", reason)
        store = await self._client.store()
        return await store.locks.force_release(check_name("lock", name), ticket, by=by, reason=reason)
