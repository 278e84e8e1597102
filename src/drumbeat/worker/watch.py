"""Detect that a handler blocks the worker's loop, from the heartbeat's thread, and name the handler and its line.

Async handlers share the loop: one that computes or sleeps without `await` blocks all others, timers and cancellations.
"""

import asyncio
import os.path
import sys
import threading
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

from drumbeat.clock import Clock

CHECK_INTERVAL = 0.25
BLOCKED_SECONDS = 1.0


class LoopWatch:
    def __init__(
        self,
        clock: Clock,
        handlers: Mapping[str, Callable[..., Any]],
        is_busy: Callable[[], bool],
        on_blocked: Callable[[float, tuple[str, ...], str], None],
    ) -> None:
        """Made on the loop's thread. `on_blocked(seconds, tasks, where)` is called on the watching thread."""
        self._clock = clock
        self._is_busy = is_busy
        self._on_blocked = on_blocked
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._codes: dict[CodeType, str] = {
            code: name for name, handler in handlers.items() if (code := getattr(handler, "__code__", None)) is not None
        }
        self._pinged_at = 0.0
        self._has_answered = True
        self._is_reported = False

    async def run(self) -> None:
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            if self._has_answered:
                if self._is_busy():
                    self._ping()
            elif not self._is_reported and (waited := self._clock.monotonic() - self._pinged_at) >= BLOCKED_SECONDS:
                self._is_reported = True
                self._on_blocked(waited, *self._find_culprit())

    def _ping(self) -> None:
        self._has_answered, self._is_reported = False, False
        self._pinged_at = self._clock.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed
            self._has_answered = True

    def _answer(self) -> None:
        self._has_answered = True

    def _find_culprit(self) -> tuple[tuple[str, ...], str]:
        """The tasks whose handlers are on the loop's stack, and the line that is executing."""
        frame = sys._current_frames().get(self._thread)
        where = "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        found: list[str] = []
        each: FrameType | None = frame
        while each is not None:
            if (name := self._codes.get(each.f_code)) is not None:
                found.append(name)
                where = f"{os.path.basename(each.f_code.co_filename)}:{each.f_lineno}"
            each = each.f_back
        return tuple(found), where
