"""The open stores of one app: one for each event loop of this process.

A store is opened by the first call on a loop and closed when the app is closed there, or when the loop ends. A forked
child drops those of its parent without closing them: the files and sockets under them are the parent's.
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
    """What one loop has: a store once it is open, and the poller that asks it for results."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]]) -> None:
        self._open_store = open_store
        self._open_lock = asyncio.Lock()
        self._opened: tuple[Store, ResultPoller] | None = None
        self._close_guard: AsyncGenerator[None] | None = None
        self.users = 0
        """How many `async with app` are open on this loop."""

    @property
    def is_open(self) -> bool:
        return self._opened is not None

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
        return self._opened

    async def close(self) -> None:
        async with self._open_lock:
            guard, self._close_guard, self._opened = self._close_guard, None, None
            if guard is not None:
                await guard.aclose()


async def _close_with_loop(store: Store) -> AsyncGenerator[None]:
    """Closes the store when it is closed itself.

    Whoever ends a loop in good order (asyncio.run does) first closes the async generators that live on it: this is the one
    hook by which a library hears of the end of a loop that is not its own.
    """
    loop = asyncio.get_running_loop()
    try:
        yield
    finally:
        # A loop that was closed by hand asks nobody: then this is the garbage collector, and there is nothing to wait on.
        if not loop.is_closed():
            await store.close()


class LoopStores:
    """Finds the connection of the running loop. Any thread may ask."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]]) -> None:
        self._open_store = open_store
        self._lock = threading.Lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopStore] = WeakKeyDictionary()
        reset_in_child(self)

    def current(self) -> LoopStore:
        """The connection of the running loop, opened or not."""
        loop = asyncio.get_running_loop()
        with self._lock:
            connection = self._by_loop.get(loop)
            if connection is None:
                # A store may hold its loop, so that neither is ever collected by itself: closed loops are swept.
                for gone in [each for each in self._by_loop if each.is_closed()]:
                    del self._by_loop[gone]
                connection = self._by_loop[loop] = LoopStore(self._open_store)
            return connection

    @property
    def is_open(self) -> bool:
        """Whether a store is open, on whichever loop."""
        with self._lock:
            return any(each.is_open for loop, each in self._by_loop.items() if not loop.is_closed())

    def reset_after_fork(self) -> None:
        """In a forked child: start anew, and keep what is the parent's from being closed by the garbage collector."""
        self._lock = threading.Lock()
        _kept_alive.append(self._by_loop)
        self._by_loop = WeakKeyDictionary()


_kept_alive: list[object] = []
