"""The one place in the tests that may sleep: waiting for what another thread or process does, with a deadline."""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from drumbeat.errors import StoreUnavailable

STEP, LONGEST_STEP = 0.01, 0.1
"""Whoever has waited long already looks less often, and is late by a twentieth at most: it is the machine of those who are
waited for, too."""
NOTICED = 0.03
"""A thread that wants to go on after a step, and is this late, was kept waiting by the machine."""


async def until(
    predicate: Callable[[], Any] | Callable[[], Awaitable[Any]], *, deadline: float = 10.0, what: str = "the condition"
) -> Any:
    """Wait until the predicate gives something true, and return that. It may be sync or async."""
    end = time.monotonic() + deadline
    while True:
        found = predicate()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        left = end - time.monotonic()
        if left < 0:
            raise AssertionError(f"{what} did not come true within {deadline:g} s; last seen: {found!r}")
        await asyncio.sleep(_step(deadline - left))


def until_sync(predicate: Callable[[], Any], *, deadline: float = 10.0, what: str = "the condition") -> Any:
    """The same for tests without a loop."""
    end = time.monotonic() + deadline
    while not (found := predicate()):
        left = end - time.monotonic()
        if left < 0:
            raise AssertionError(f"{what} did not come true within {deadline:g} s; last seen: {found!r}")
        time.sleep(_step(deadline - left))
    return found


def _step(waited: float) -> float:
    return min(LONGEST_STEP, max(STEP, waited / 20))


class Stalls:
    """For how long this machine has let nobody go on: what is promised within a second may come so much later.

    Use it with `with`, around what is measured: `assert took < 1.0 + stalls.seconds`.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._seen = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)

    @property
    def seconds(self) -> float:
        return self._seconds + self._late()

    def __enter__(self) -> Self:
        self._seen = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(STEP):
            self._seconds += self._late()
            self._seen = time.monotonic()

    def _late(self) -> float:
        late = time.monotonic() - self._seen - STEP
        return late if late > NOTICED else 0.0


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """The body is done so soon, not counting the time in which the machine let nobody go on."""
    with Stalls() as stalls:
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        assert took < seconds + stalls.seconds, (
            f"it took {took:.3f} s, of which the machine stood {stalls.seconds:.3f} s"
        )


async def all_unavailable(*calls: Awaitable[object]) -> None:
    """Each of these calls to a store, made at the same time, must find it unavailable."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * len(calls)
