"""GET /api/v1/events: what the ticker tells, as server-sent events.

    event: tick     data: the record `Tick`, twice a second
    event: gone     data: {"reason": ...}, while the store is away

A stream ends when its server wants to leave, and after a quarter of an hour, so that somebody whose rights have been taken
does not look on for ever: browsers come again by themselves. There are only so many at once, in all and for each caller:
somebody who opens one after the other and reads none would hold connections and memory of the server for nothing.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

from drumbeat.web.call import Answer, Call
from drumbeat.web.problem import Problem

MEDIA = "text/event-stream; charset=utf-8"
LONGEST = 900.0
COME_AGAIN = b"retry: 1000\n\n"


async def follow(call: Call) -> Answer:
    """The stream."""
    streams = call.parts.streams
    if not streams.has_room(_who(call)):
        raise Problem(
            429,
            f"there are {streams.limit} streams of events at most, {streams.per_caller} for each caller: close some, or come "
            "again later",
            type="too-many-viewers",
            headers={"Retry-After": "5"},
        )
    # X-Accel-Buffering: nginx would collect what should be seen at once.
    return Answer(body=_told(call), media=MEDIA, headers={"X-Accel-Buffering": "no"})


async def _told(call: Call) -> AsyncIterator[bytes]:
    clock, ticker, parts = call.host.clock, call.parts.ticker, call.parts
    end = clock.monotonic() + LONGEST
    number, who = ticker.begin(), _who(call)
    if not parts.streams.has_room(who):
        return  # many have come in the same moment
    parts.streams.enter(who)
    try:
        yield COME_AGAIN
        while not parts.is_closing and not _server_leaves() and clock.monotonic() < end:
            if (told := await ticker.after(number)) is not None:
                number = told.number
                yield told.text
    finally:
        parts.streams.leave(who)


def _who(call: Call) -> str:
    return f"{call.caller.via} {call.caller.name}"


def _server_leaves() -> bool:
    """Whether uvicorn, of whoever has mounted us, has been told to stop.

    It waits for open streams to end and tells the application only after that; but it is found by the signal that it takes.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
