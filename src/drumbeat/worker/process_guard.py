"""What handlers change of the process that they share, and that a worker cannot work without: it is put back.

Remembered before the first job, when lifespans and start-up calls have made the process what the program wants it to be: the
loop's task factory, the limits of the interpreter, the signals that stop a worker. Standard streams that were closed are
opened on /dev/null: else the next connection would get their numbers, and whatever is printed would be written into it.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable

from drumbeat.processes.spawn import reopen_streams

log = logging.getLogger(__name__)

CHECK_INTERVAL = 1.0


class ProcessGuard:
    """Made before the first job, on the thread of the loop that it guards."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, is_own_process: bool, signals: Callable[[], None] | None = None
    ) -> None:
        """`signals`: have the signals taken again that stop this worker; None: they are not ours."""
        self._loop = loop
        self._is_own_process = is_own_process
        self._get_factory = loop.get_task_factory
        self._factory = self._get_factory()
        self._recursion_limit = sys.getrecursionlimit()
        self._switch_interval = sys.getswitchinterval()
        self._take_signals = signals
        self._handlers = self._signal_handlers()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look every second, until stopped."""
        self._timer = self._loop.call_later(CHECK_INTERVAL, self._on_timer)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def restore_loop(self) -> None:
        """After each job: what would fail at once if it was not put back."""
        if self._get_factory() is not self._factory or sys.getrecursionlimit() != self._recursion_limit:
            self._restore_loop()

    def _restore_loop(self) -> None:
        changed = []
        if sys.getrecursionlimit() != self._recursion_limit:  # first: what follows may need the depth
            sys.setrecursionlimit(self._recursion_limit)
            changed.append("the recursion limit")
        if self._get_factory() is not self._factory:
            self._loop.set_task_factory(self._factory)
            changed.append("the loop's task factory")
        self._log_changes(changed)

    def _on_timer(self) -> None:
        self.start()
        self.restore_all()

    def restore_all(self) -> None:
        """Put back everything."""
        self.restore_loop()
        self.restore_process()

    def restore_process(self) -> None:
        """After each turn of the slots, a millisecond of jobs: what must not wait until the next look."""
        changed = []
        if sys.getswitchinterval() != self._switch_interval:
            sys.setswitchinterval(self._switch_interval)
            changed.append("the interpreter's switch interval")
        if self._take_signals is not None and self._signal_handlers() != self._handlers:
            self._take_signals()
            self._handlers = self._signal_handlers()
            changed.append("the handlers of SIGINT and SIGTERM")
        if self._is_own_process:
            changed.extend(f"file descriptor {number}" for number in reopen_streams())
        self._log_changes(changed)

    def _signal_handlers(self) -> list[object]:
        return [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]

    def _log_changes(self, changed: list[str]) -> None:
        if changed:
            log.error("a handler changed what the whole process needs: put back", extra={"changed": ", ".join(changed)})
