"""The open stores of one app: one for each event loop of this process.

A store is opened by the first call on a loop and closed when the app is closed there, or when the loop ends. A forked
child drops those of its parent without closing them: the files and sockets under them are the parent's.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from weakref import WeakKeyDictionary, WeakSet

from drumbeat.store.protocol import Store

from .results import ResultPoller


class Connection:
    """What one loop has: a store once it is open, and the poller that asks it for results."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]]) -> None:
        self._open_store = open_store
        self._opening = asyncio.Lock()
        self._opened: tuple[Store, ResultPoller] | None = None
        self._guard: AsyncGenerator[None] | None = None
        self.users = 0
        """How many `async with app` are open on this loop."""

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    async def store(self) -> Store:
        return (await self._ready())[0]

    async def poller(self) -> ResultPoller:
        return (await self._ready())[1]

    async def _ready(self) -> tuple[Store, ResultPoller]:
        if self._opened is None:
            async with self._opening:
                if self._opened is None:
                    store = await self._open_store()
                    self._guard = _close_with_loop(store)
                    await anext(self._guard)
                    self._opened = store, ResultPoller(store.jobs)
        return self._opened

    async def close(self) -> None:
        async with self._opening:
            guard, self._guard, self._opened = self._guard, None, None
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


class Connections:
    """Finds the connection of the running loop. Any thread may ask."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]]) -> None:
        self._open_store = open_store
        self._lock = threading.Lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Connection] = WeakKeyDictionary()
        _all.add(self)

    def here(self) -> Connection:
        """The connection of the running loop, opened or not."""
        loop = asyncio.get_running_loop()
        with self._lock:
            connection = self._by_loop.get(loop)
            if connection is None:
                # A store may hold its loop, so that neither is ever collected by itself: closed loops are swept.
                for gone in [each for each in self._by_loop if each.is_closed()]:
                    del self._by_loop[gone]
                connection = self._by_loop[loop] = Connection(self._open_store)
            return connection

    @property
    def is_open(self) -> bool:
        """Whether a store is open, on whichever loop."""
        with self._lock:
            return any(each.is_open for loop, each in self._by_loop.items() if not loop.is_closed())

    def forget(self) -> None:
        """In a forked child: start anew, and keep what is the parent's from being closed by the garbage collector."""
        self._lock = threading.Lock()
        _left_behind.append(self._by_loop)
        self._by_loop = WeakKeyDictionary()


_all: WeakSet[Connections] = WeakSet()
_left_behind: list[object] = []


def _forget_all() -> None:
    for connections in list(_all):
        connections.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
