"""GET /api/v1/events: what the ticker tells, as server-sent events.

    event: tick     data: the record `Tick`, twice a second
    event: gone     data: {"reason": ...}, while the store is away

A stream ends when its server wants to leave, and after a quarter of an hour, so that somebody whose rights have been taken
does not look on for ever: browsers come again by themselves.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

from drumbeat.web.call import Answer, Call

MEDIA = "text/event-stream; charset=utf-8"
LONGEST = 900.0
COME_AGAIN = b"retry: 1000\n\n"


async def follow(call: Call) -> Answer:
    """The stream."""
    # X-Accel-Buffering: nginx would collect what should be seen at once.
    return Answer(body=_told(call), media=MEDIA, headers={"X-Accel-Buffering": "no"})


async def _told(call: Call) -> AsyncIterator[bytes]:
    clock, ticker = call.host.clock, call.parts.ticker
    end = clock.monotonic() + LONGEST
    number = ticker.begin()
    yield COME_AGAIN
    while not call.parts.is_closing and not _server_leaves() and clock.monotonic() < end:
        if (told := await ticker.after(number)) is not None:
            number = told.number
            yield told.text


def _server_leaves() -> bool:
    """Whether uvicorn, of whoever has mounted us, has been told to stop.

    It waits for open streams to end and tells the application only after that; but it is found by the signal that it takes.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
