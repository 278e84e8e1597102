"""`drumbeat demo`: everything at once, on a temporary SQLite file, in a quarter of a minute."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from drumbeat.cli.demo.play import Ending, Screen

WORKERS = 2
TERMINATED = 143


@click.command("demo")
@click.option("--no-dashboard", is_flag=True, help="Without the dashboard, which is not in this release anyway.")
@click.option("--svg", type=click.Path(dir_okay=False, writable=True), hidden=True)
def command(no_dashboard: bool, svg: str | None) -> int:
    """Watch jobs succeed, wait, fail, die with their worker and recover.

    Two worker processes on a temporary SQLite file, which is removed at the end; nothing of yours is touched. One of them
    is killed with SIGKILL in the middle of a job. Exits 0 if everything ended as it should.
    """
    from drumbeat.cli import output
    from drumbeat.cli.demo.screen import DemoScreen, save_svg, show_ending

    console = output.console()
    screen = DemoScreen(console)
    with tempfile.TemporaryDirectory(prefix="drumbeat-demo-") as folder:
        with screen:
            ending = asyncio.run(_perform(Path(folder), screen))
        if ending is None:
            return TERMINATED
        show_ending(console, ending)
        if svg is not None:
            save_svg(svg, screen, ending)
    return 1 if ending.problems else 0


async def _perform(folder: Path, screen: Screen) -> Ending | None:
    """None if somebody ended it by SIGTERM."""
    from drumbeat.cli.demo.app import app
    from drumbeat.cli.demo.crew import Crew
    from drumbeat.cli.demo.play import Play

    flags = _flags(folder)
    app.configure(flags)
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    async with app, Crew(flags, folder, size=WORKERS) as crew, asyncio.TaskGroup() as group:
        play = group.create_task(Play(crew, screen).perform(), name="play")
        end = group.create_task(terminated.wait(), name="SIGTERM")
        await asyncio.wait([play, end], return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if play.done():
            return play.result()
        play.cancel()
    return None


def _flags(folder: Path) -> dict[str, Any]:
    """Every setting, so that neither the environment nor a .env here has a say; hearts beat faster than by default."""
    from drumbeat.appref import flags_of
    from drumbeat.settings import Settings

    return flags_of(
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
