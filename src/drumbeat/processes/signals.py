"""SIGINT and SIGTERM on an event loop."""

import asyncio
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from drumbeat.clock import Clock

SIGNALS = (signal.SIGINT, signal.SIGTERM)
P = ParamSpec("P")


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at each SIGINT and SIGTERM while the body runs; the old handlers are restored afterwards."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    install_signal_handlers(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def install_signal_handlers(stop: Callable[[], None]) -> None:
    """Call `stop` at each SIGINT and SIGTERM, replacing any other handlers."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop)


def debounce(call: Callable[P, None], seconds: float, clock: Clock) -> Callable[P, None]:
    """Ignore calls that come within `seconds` of the last one that was passed on."""
    called_at = -math.inf

    def debounced(*args: P.args, **kwargs: P.kwargs) -> None:
        nonlocal called_at
        if clock.monotonic() - called_at >= seconds:
            called_at = clock.monotonic()
            call(*args, **kwargs)

    return debounced
