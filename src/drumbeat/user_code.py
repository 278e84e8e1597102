"""Calls of the program's code that are not jobs: handlers of rooms, start-up calls, lifespans."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from drumbeat.context import AbortReason, AbortSignal
from drumbeat.durations import format_length


async def call_with_timeout(call: Callable[[], Awaitable[Any]], timeout_us: int | None, signal: AbortSignal) -> None:
    """Await a call. On a timeout `signal` is set, because a call in a thread goes on.

    Raises:
        TimeoutError: it names the limit.
    """
    limit = None if timeout_us is None else timeout_us / 1e6
    try:
        async with asyncio.timeout(limit) as timer:
            await call()
    except TimeoutError:
        if not timer.expired():
            raise
        signal.set(AbortReason.TIMED_OUT)
        raise TimeoutError(f"timed out after {format_length(timeout_us or 0)}") from None


def is_own_cancellation(error: BaseException) -> bool:
    """Whether this is a cancellation of the current task, and not a CancelledError that the called code raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
