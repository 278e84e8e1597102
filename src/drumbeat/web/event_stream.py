"""GET /api/v1/events: the ticks of the ticker as server-sent events.

    event: tick        data: the record `Tick`, twice a second
    event: store_down  data: {"reason": ...}, while the store is unavailable

A stream ends when its server stops, and after 15 minutes, so that revoked rights take effect: browsers reconnect by
themselves. The number of streams is limited, in all and for each caller, because each holds a connection and memory.
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
    """The stream; Problem 429 if there are too many."""
    streams = request.dashboard.streams
    if not streams.can_open(_caller_key(request)):
        raise Problem(
            429,
            f"event stream limit reached ({streams.limit}, {streams.per_caller} per caller); retry later",
            type="too-many-viewers",
            headers={"Retry-After": "5"},
        )
    # nginx would buffer the events.
    return StreamingResponse(_stream(request), media_type=EVENT_STREAM_MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


async def _stream(request: DashboardRequest) -> AsyncIterator[bytes]:
    clock, ticker, dashboard = request.app.clock, request.dashboard.ticker, request.dashboard
    end = clock.monotonic() + MAX_STREAM_SECONDS
    number, who = ticker.first_number(), _caller_key(request)
    if not dashboard.streams.can_open(who):
        return  # others were opened since the check above
    dashboard.streams.open(who)
    try:
        yield SSE_RETRY
        while not dashboard.is_closing and not _is_server_stopping() and clock.monotonic() < end:
            if (message := await ticker.wait_after(number)) is not None:
                number = message.number
                yield message.text
    finally:
        dashboard.streams.close(who)


def _caller_key(request: DashboardRequest) -> str:
    return f"{request.caller.via} {request.caller.name}"


def _is_server_stopping() -> bool:
    """Whether the uvicorn around a mounted dashboard is stopping.

    It waits for open streams before it tells the application, so it is found by its signal handler.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
