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


async def run_demo(
    folder: Path,
    screen: DemoScreen,
    *,
    dashboard: DemoDashboard | None,
    stays: bool,
    on_result: Callable[[DemoResult], None],
) -> int:
    """Run everything; `on_result` is called when the scenario has ended. Returns the exit code."""
    flags, signals = _demo_flags(folder), SignalScope()
    app.configure(flags)
    with signals.handle_signals():
        async with app, AsyncExitStack() as around:
            workers = DemoWorkers(flags, folder, size=WORKERS)
            around.push_async_callback(workers.stop)
            buttons = await around.enter_async_context(dashboard.serve(workers)) if dashboard else None
            with screen.live:
                result = await signals.run(Scenario(workers, screen).run())
            if result is not None:
                if buttons is not None:
                    buttons.is_scenario_running = False
                on_result(result)
                if stays:
                    await signals.run(asyncio.Event().wait())
                    if signals.signal is signal.SIGINT:  # otherwise the terminal may be gone
                        screen.say("Stopping the workers and removing their files.")
    # After the scenario, Ctrl-C is the normal way to end it.
    if result is None or signals.signal in (signal.SIGTERM, signal.SIGHUP):
        return 128 + (signals.signal or signal.SIGTERM)
    return int(bool(result.problems))


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
