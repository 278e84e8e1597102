"""Restore process-wide state that handlers change and that a worker cannot work without.

`arm` remembers the state before the first job, when lifespans and start-up calls have made the process what the program
wants: the loop's task factory, the interpreter's limits, the signals that stop a worker. Standard streams that were closed
are reopened on /dev/null: otherwise the next connection would get their numbers, and everything that is printed would be
written into it.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable

from drumbeat.processes.standard_streams import reopen_streams

log = logging.getLogger(__name__)

CHECK_INTERVAL = 1.0


class ProcessGuard:
    """Made on the thread of the loop that it guards. Does nothing before `arm`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        install_signals: Callable[[], None] | None,
        *,
        is_own_process: bool | None = None,
    ) -> None:
        """`install_signals` installs the handlers of the signals that stop this worker; None: the program has its own.
        `is_own_process` defaults to whether there is one."""
        self._loop = loop
        self._install_signals = install_signals
        self._is_own_process = install_signals is not None if is_own_process is None else is_own_process
        self._is_armed = False
        self._get_factory = loop.get_task_factory
        self._timer: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Remember the present state as the one to restore."""
        self._factory = self._get_factory()
        self._recursion_limit = sys.getrecursionlimit()
        self._switch_interval = sys.getswitchinterval()
        self._handlers = self._signal_handlers()
        self._is_armed = True

    def start(self) -> None:
        """Arm, and check every second until stopped."""
        self.arm()
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(CHECK_INTERVAL, self._on_timer)

    def _on_timer(self) -> None:
        self._schedule()
        self.restore_all()

    def restore_loop(self) -> None:
        """After each job: what would fail at once."""
        if self._is_armed and (
            self._get_factory() is not self._factory or sys.getrecursionlimit() != self._recursion_limit
        ):
            self._restore_loop()

    def _restore_loop(self) -> None:
        changed = []
        if sys.getrecursionlimit() != self._recursion_limit:  # first: the rest may need the depth
            sys.setrecursionlimit(self._recursion_limit)
            changed.append("the recursion limit")
        if self._get_factory() is not self._factory:
            self._loop.set_task_factory(self._factory)
            changed.append("the loop's task factory")
        self._log_changes(changed)

    def restore_all(self) -> None:
        self.restore_loop()
        self.restore_process()

    def restore_process(self) -> None:
        """After each turn of the slots, a millisecond of jobs: what must not wait for the next check."""
        if not self._is_armed:
            return
        changed = []
        if sys.getswitchinterval() != self._switch_interval:
            sys.setswitchinterval(self._switch_interval)
            changed.append("the interpreter's switch interval")
        if self._install_signals is not None and self._signal_handlers() != self._handlers:
            self._install_signals()
            self._handlers = self._signal_handlers()
            changed.append("the handlers of SIGINT and SIGTERM")
        if self._is_own_process:
            changed.extend(f"file descriptor {number}" for number in reopen_streams())
        self._log_changes(changed)

    def _signal_handlers(self) -> list[object]:
        return [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]

    def _log_changes(self, changed: list[str]) -> None:
        if changed:
            log.error("a handler changed process-wide state: restored", extra={"changed": ", ".join(changed)})
