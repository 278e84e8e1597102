"""`drumbeat top`: the cluster at a glance, again and again: queues, rates, processes, what dies.

On a terminal it has the screen for itself until q or Ctrl-C; elsewhere the pictures follow each other. What is shown is
made by `picture.py` beside it.
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
from drumbeat.cli.connection import ask
from drumbeat.cli.options import DURATION, Target, pass_target, target_options
from drumbeat.errors import StoreUnavailable

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.nouns.health import HealthWatch

SHORTEST = 0.2


@click.command("top")
@click.option("--once", is_flag=True, help="Print it once, and end.")
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="How often to look.")
@target_options
@pass_target
def command(target: Target, /, once: bool, interval: float) -> None:
    """Show queues, rates, running processes and what dies, until q or Ctrl-C."""
    interval = max(SHORTEST, interval)

    async def shown(app: Drumbeat) -> None:
        from drumbeat.nouns.health import HealthWatch

        watch = HealthWatch(app.clock)
        if once:
            await _print(app, target, watch)
        elif sys.stdout.isatty() and sys.stdin.isatty() and not target.json:
            await _live(app, target, interval, watch)
        else:
            await _follow(app, target, interval, watch)

    ask(target, shown)


async def _print(app: Drumbeat, target: Target, watch: HealthWatch) -> None:
    from drumbeat.cli.picture import drawn, taken

    picture = await taken(app, target.place, watch)
    if target.json:
        output.json_lines([picture])
    else:
        out = output.console()
        out.print(drawn(picture, out.width))
    sys.stdout.flush()


async def _follow(app: Drumbeat, target: Target, interval: float, watch: HealthWatch) -> None:
    """For a pipe or a file."""
    while True:
        try:
            await _print(app, target, watch)
        except StoreUnavailable as error:
            click.echo(f"drumbeat: {error}", err=True)
        await app.clock.sleep(interval)


async def _live(app: Drumbeat, target: Target, interval: float, watch: HealthWatch) -> None:
    from rich.live import Live
    from rich.text import Text

    from drumbeat.cli.picture import drawn, taken

    out, picture = output.console(), None
    with _until_told() as told, Live(console=out, screen=True, auto_refresh=False) as live:
        while not told.is_set():
            problem = ""
            try:
                picture = await taken(app, target.place, watch)
            except StoreUnavailable as error:
                problem = str(error)
            live.update(Text(problem) if picture is None else drawn(picture, out.width, problem=problem), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), interval)


@contextlib.contextmanager
def _until_told() -> Iterator[asyncio.Event]:
    """An event that q and Ctrl-C set. Keys are heard one by one meanwhile, and are not shown."""
    import termios
    import tty

    told, loop, keyboard = asyncio.Event(), asyncio.get_running_loop(), sys.stdin.fileno()

    def hear() -> None:
        if os.read(keyboard, 64).lower()[:1] in (b"q", b""):
            told.set()

    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, hear)
    loop.add_signal_handler(signal.SIGINT, told.set)
    try:
        yield told
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
