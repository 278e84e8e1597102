"""Is the worker's loop turning? Watched from the heart's thread; a handler that blocks it is named, with its line.

Async handlers share the loop: one that computes or sleeps without `await` holds up all others, timers and cancellations.
"""

import asyncio
import os.path
import sys
import threading
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

from drumbeat.clock import Clock

LOOK_EVERY = 0.25
BLOCKED_AFTER = 1.0


class LoopWatch:
    def __init__(
        self,
        clock: Clock,
        handlers: Mapping[str, Callable[..., Any]],
        is_busy: Callable[[], bool],
        on_blocked: Callable[[float, tuple[str, ...], str], None],
    ) -> None:
        """Made on the loop's own thread. `on_blocked(seconds, tasks, where)` is called on the watching thread."""
        self._clock = clock
        self._is_busy = is_busy
        self._on_blocked = on_blocked
        self._home = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._codes: dict[CodeType, str] = {
            code: name for name, handler in handlers.items() if (code := getattr(handler, "__code__", None)) is not None
        }
        self._asked_at = 0.0
        self._answered = True
        self._told = False

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY)
            if self._answered:
                if self._is_busy():
                    self._ask()
            elif not self._told and (waited := self._clock.monotonic() - self._asked_at) >= BLOCKED_AFTER:
                self._told = True
                self._on_blocked(waited, *self._culprit())

    def _ask(self) -> None:
        self._answered, self._told = False, False
        self._asked_at = self._clock.monotonic()
        try:
            self._home.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed
            self._answered = True

    def _answer(self) -> None:
        self._answered = True

    def _culprit(self) -> tuple[tuple[str, ...], str]:
        """The task whose handler is on the loop's stack, and the line where it stands."""
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
