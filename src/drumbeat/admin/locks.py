"""`app.locks`: who holds which lock in the cluster, who waits, and taking one away by force."""

from __future__ import annotations

import builtins

from drumbeat.client import Client
from drumbeat.core.lock import LockInfo
from drumbeat.errors import InvalidArguments
from drumbeat.names import check_name

from .notes import check_note

PAGE = 500


class Locks:
    """Look at locks, and release them by force."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self, *, all: bool = False) -> builtins.list[LockInfo]:
        """Every lock that somebody holds or waits for, by name, with its holders; with `all` also those idle since a day."""
        store = await self._client.store()
        found: builtins.list[LockInfo] = []
        while page := await store.locks.list_page(after=found[-1].name if found else "", limit=PAGE, all=all):
            found += page
            if len(page) < PAGE:
                break
        return found

    async def show(self, name: str) -> LockInfo:
        """One lock with its holders and its line, in the order of turns."""
        store = await self._client.store()
        found = await store.locks.get(check_name("lock", name))
        if found is None:
            raise InvalidArguments(f"there is no lock {name!r}: nobody has used it for a day", "name")
        return found

    async def release(self, name: str, ticket: str | None = None, *, reason: str, by: str | None = None) -> int:
        """Take the lock away from all who hold it, or only this ticket from its owner. Returns how many there were.

        They hear of it as of a lost lock, in some milliseconds; until then they still work under it, and only the token keeps
        their late writes out. `by` and `reason` are shown at the lock; `by` is the app's own name if it is not given.
        """
        by = check_note("by", self._client.settings.name if by is None else by)
        store = await self._client.store()
        return await store.locks.force_release(
            check_name("lock", name), ticket, by=by, reason=check_note("reason", reason)
        )
