"""Runs the demo: the workers, the dashboard, the scenario, and the time after it.

workers start > scenario (about 15 s) > its summary > on a terminal the dashboard stays > Ctrl-C
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from drumbeat.appref import to_flags
from drumbeat.cli.demo.app import app
from drumbeat.cli.demo.scenario import DemoResult, Scenario
from drumbeat.cli.demo.screen import DemoScreen
from drumbeat.cli.demo.workers import DemoWorkers
from drumbeat.settings import Settings

if TYPE_CHECKING:
    from drumbeat.cli.demo.dashboard import DemoDashboard

T = TypeVar("T")

WORKERS = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalScope:
    """Ends the current work at the first SIGINT, SIGTERM, or SIGHUP (the terminal was closed)."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._timeout: asyncio.Timeout | None = None

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # Ignored signals stay ignored: nohup.
        handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in handled:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    async def run(self, work: Awaitable[T]) -> T | None:
        """The result of the work; None if a signal ended it."""
        self._timeout = asyncio.timeout(0 if self.signal is not None else None)
        try:
            async with self._timeout:
                return await work
        except TimeoutError:
            if self.signal is None:
                raise
            return None
        finally:
            self._timeout = None

    def _on_signal(self, number: signal.Signals) -> None:
        if self.signal is not None:
            return
        self.signal = number
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())


class DemoRunner:
    def __init__(self, folder: Path, screen: DemoScreen, *, dashboard: DemoDashboard | None, stays: bool) -> None:
        self._folder = folder
        self._screen = screen
        self._dashboard = dashboard
        self._stays = stays
        self._signals = SignalScope()

    async def run(self, *, on_result: Callable[[DemoResult], None]) -> int:
        """Run everything; `on_result` is called when the scenario has ended. Returns the exit code."""
        flags = _demo_flags(self._folder)
        app.configure(flags)
        with self._signals.handle_signals():
            async with app, DemoWorkers(flags, self._folder, size=WORKERS) as workers, AsyncExitStack() as around:
                buttons = await around.enter_async_context(self._dashboard.serve(workers)) if self._dashboard else None
                with self._screen:
                    result = await self._signals.run(Scenario(workers, self._screen).run())
                if result is None:
                    return self._exit_code
                if buttons is not None:
                    buttons.is_scenario_running = False
                on_result(result)
                if self._stays:
                    await self._signals.run(asyncio.Event().wait())
                    if self._signals.signal is signal.SIGINT:  # otherwise the terminal may be gone
                        self._screen.say("Stopping the workers and removing their files.")
        # Ctrl-C is the normal way to end it.
        return (
            self._exit_code if self._signals.signal in (signal.SIGTERM, signal.SIGHUP) else int(bool(result.problems))
        )

    @property
    def _exit_code(self) -> int:
        return 128 + (self._signals.signal or signal.SIGTERM)


def _demo_flags(folder: Path) -> dict[str, Any]:
    """Every setting, so that the environment and a .env do not count; heartbeats are faster than by default."""
    return to_flags(
        Settings(
            url=f"sqlite:///{folder}/demo.db",
            name="demo",
            concurrency=8,
            batch=50,
            heartbeat=0.2,
            dead_after=2.0,
            drain=2.0,
            log_level="warning",
        )
    )
