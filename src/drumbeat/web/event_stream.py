"""GET /api/v1/events: what the ticker tells, as server-sent events.

    event: tick        data: the record `Tick`, twice a second
    event: store_down  data: {"reason": ...}, while the store is unavailable

A stream ends when its server wants to leave, and after a quarter of an hour, so that somebody whose rights have been taken
does not look on for ever: browsers come again by themselves. There are only so many at once, in all and for each caller:
somebody who opens one after the other and reads none would hold connections and memory of the server for nothing.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest

EVENT_STREAM_MEDIA_TYPE = "text/event-stream; charset=utf-8"
MAX_STREAM_SECONDS = 900.0
SSE_RETRY = b"retry: 1000\n\n"


async def stream_events(request: DashboardRequest) -> Response:
    """The stream."""
    streams = request.dashboard.streams
    if not streams.can_open(_caller_key(request)):
        raise Problem(
            429,
            f"event stream limit reached ({streams.limit}, {streams.per_caller} per caller); retry later",
            type="too-many-viewers",
            headers={"Retry-After": "5"},
        )
    # X-Accel-Buffering: nginx would collect what should be seen at once.
    return StreamingResponse(_stream(request), media_type=EVENT_STREAM_MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


async def _stream(request: DashboardRequest) -> AsyncIterator[bytes]:
    clock, ticker, parts = request.app.clock, request.dashboard.ticker, request.dashboard
    end = clock.monotonic() + MAX_STREAM_SECONDS
    number, who = ticker.first_number(), _caller_key(request)
    if not parts.streams.can_open(who):
        return  # many have come in the same moment
    parts.streams.open(who)
    try:
        yield SSE_RETRY
        while not parts.is_closing and not _is_server_stopping() and clock.monotonic() < end:
            if (told := await ticker.wait_after(number)) is not None:
                number = told.number
                yield told.text
    finally:
        parts.streams.close(who)


def _caller_key(request: DashboardRequest) -> str:
    return f"{request.caller.via} {request.caller.name}"


def _is_server_stopping() -> bool:
    """Whether uvicorn, of whoever has mounted us, has been told to stop.

    It waits for open streams to end and tells the application only after that; but it is found by the signal that it takes.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
