"""`drumbeat top`: queues, rates, instances and new dead letters, live.

On a terminal it takes the whole screen until q or Ctrl-C; elsewhere it prints snapshots one after the other. `top_view.py`
draws them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from drumbeat.cli import output
from drumbeat.cli.connection import call_app
from drumbeat.cli.options import DURATION, CliTarget, target_command, target_options
from drumbeat.errors import StoreUnavailable

if TYPE_CHECKING:
    from drumbeat.admin.health import HealthMonitor
    from drumbeat.app import Drumbeat

MIN_INTERVAL = 0.2


@target_command("top", *target_options)
@click.option("--once", is_flag=True, help="Print one snapshot and exit.")
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="Time between two snapshots.")
def command(target: CliTarget, /, once: bool, interval: float) -> None:
    """Show queues, rates, instances and new dead letters, until q or Ctrl-C."""
    interval = max(MIN_INTERVAL, interval)

    async def shown(app: Drumbeat) -> None:
        from drumbeat.admin.health import HealthMonitor

        monitor = HealthMonitor(app._internals.clock)
        if once:
            await _print(app, target, monitor)
        elif sys.stdout.isatty() and sys.stdin.isatty() and not target.json:
            await _live(app, target, interval, monitor)
        else:
            await _follow(app, target, interval, monitor)

    call_app(target, shown)


async def _print(app: Drumbeat, target: CliTarget, monitor: HealthMonitor) -> None:
    from drumbeat.cli.top_view import render, take_snapshot

    snapshot = await take_snapshot(app, target.store_url, monitor)
    if target.json:
        output.print_json_lines([snapshot])
    else:
        out = output.console()
        out.print(render(snapshot, out.width))
    sys.stdout.flush()


async def _follow(app: Drumbeat, target: CliTarget, interval: float, monitor: HealthMonitor) -> None:
    """For a pipe or a file."""
    while True:
        try:
            await _print(app, target, monitor)
        except StoreUnavailable as error:
            click.echo(f"drumbeat: {error}", err=True)
        await app._internals.clock.sleep(interval)


async def _live(app: Drumbeat, target: CliTarget, interval: float, monitor: HealthMonitor) -> None:
    from rich.live import Live
    from rich.text import Text

    from drumbeat.cli.top_view import render, take_snapshot

    out, snapshot = output.console(), None
    with _quit_event() as quit, Live(console=out, screen=True, auto_refresh=False) as live:
        while not quit.is_set():
            problem = ""
            try:
                snapshot = await take_snapshot(app, target.store_url, monitor)
            except StoreUnavailable as error:
                problem = str(error)
            live.update(
                Text(problem) if snapshot is None else render(snapshot, out.width, problem=problem), refresh=True
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(quit.wait(), interval)


@contextlib.contextmanager
def _quit_event() -> Iterator[asyncio.Event]:
    """An event that q and Ctrl-C set. Meanwhile the terminal delivers single keys and does not echo them."""
    import termios
    import tty

    quit, loop, keyboard = asyncio.Event(), asyncio.get_running_loop(), sys.stdin.fileno()

    def on_key() -> None:
        if os.read(keyboard, 64).lower()[:1] in (b"q", b""):
            quit.set()

    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, on_key)
    loop.add_signal_handler(signal.SIGINT, quit.set)
    try:
        yield quit
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
