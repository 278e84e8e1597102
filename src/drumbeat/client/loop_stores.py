"""The open stores of one app: one for each event loop of this process.

The first call on a loop opens its store. It is closed when the app is closed there, or when the loop ends. A forked child
drops the stores of its parent without closing them: the files and sockets under them are the parent's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from weakref import WeakKeyDictionary

from drumbeat.fork import reset_in_child
from drumbeat.store.protocol import Store

from .result_poller import ResultPoller


class LoopStore:
    """The store of one loop, and the poller that asks it for results."""

    def __init__(
        self, open_store: Callable[[], Awaitable[Store]], open_stores: dict[asyncio.AbstractEventLoop, Store]
    ) -> None:
        self._open_store = open_store
        self._open_stores = open_stores
        self._open_lock = asyncio.Lock()
        self._opened: tuple[Store, ResultPoller] | None = None
        self._close_guard: AsyncGenerator[None] | None = None
        self.users = 0
        """How many `async with app` are open on this loop."""

    async def store(self) -> Store:
        return (await self._ensure_open())[0]

    async def poller(self) -> ResultPoller:
        return (await self._ensure_open())[1]

    async def _ensure_open(self) -> tuple[Store, ResultPoller]:
        if self._opened is None:
            async with self._open_lock:
                if self._opened is None:
                    store = await self._open_store()
                    self._close_guard = _close_with_loop(store)
                    await anext(self._close_guard)
                    self._opened = store, ResultPoller(store.jobs)
                    self._open_stores[asyncio.get_running_loop()] = store
        return self._opened

    async def close(self) -> None:
        async with self._open_lock:
            guard, self._close_guard, self._opened = self._close_guard, None, None
            self._open_stores.pop(asyncio.get_running_loop(), None)
            if guard is not None:
                await guard.aclose()


async def _close_with_loop(store: Store) -> AsyncGenerator[None]:
    """Close the store when this generator is closed.

    An orderly end of a loop (as by asyncio.run) first closes the async generators that live on it: the only hook by which a
    library learns of the end of a loop that is not its own.
    """
    loop = asyncio.get_running_loop()
    try:
        yield
    finally:
        # On a loop that was closed without that, this runs in the garbage collector: nothing can be awaited.
        if not loop.is_closed():
            await store.close()


class LoopStores:
    """Finds the store of the running loop. May be used on any thread."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]]) -> None:
        self._open_store = open_store
        self._lock = threading.Lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopStore] = WeakKeyDictionary()
        self.open_stores: dict[asyncio.AbstractEventLoop, Store] = {}
        """The short way of every call to an open store: one lookup, without a lock."""
        reset_in_child(self)

    def current(self) -> LoopStore:
        """The store of the running loop, opened or not."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._by_loop.get(loop)
            if found is None:
                # A store may refer to its loop, so that the garbage collector frees neither: drop those of closed loops.
                for closed in [each for each in self._by_loop if each.is_closed()]:
                    del self._by_loop[closed]
                    self.open_stores.pop(closed, None)
                found = self._by_loop[loop] = LoopStore(self._open_store, self.open_stores)
            return found

    @property
    def is_open(self) -> bool:
        """Whether a store is open on any loop."""
        return any(not loop.is_closed() for loop in list(self.open_stores))

    def reset_after_fork(self) -> None:
        """In a forked child: start anew, and keep the garbage collector from closing the stores of the parent."""
        self._lock = threading.Lock()
        _kept_alive.append((self._by_loop, self.open_stores))
        self._by_loop, self.open_stores = WeakKeyDictionary(), {}


_kept_alive: list[object] = []
