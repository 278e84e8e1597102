"""The one place in the tests that may sleep: waiting for what another thread or process does, with a deadline."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

STEP = 0.01


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
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {deadline:g} s; last seen: {found!r}")
        await asyncio.sleep(STEP)


def until_sync(predicate: Callable[[], Any], *, deadline: float = 10.0, what: str = "the condition") -> Any:
    """The same for tests without a loop."""
    end = time.monotonic() + deadline
    while not (found := predicate()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {deadline:g} s; last seen: {found!r}")
        time.sleep(STEP)
    return found
