"""`drumbeat demo`: everything at once, on a temporary SQLite file: a play of a quarter of a minute, and its dashboard."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from drumbeat.cli.demo.dashboard import DemoDashboard
    from drumbeat.cli.demo.scenario import DemoResult


@click.command("demo")
@click.option("--no-dashboard", is_flag=True, help="Only the play, in this terminal.")
@click.option("--exit", "ends", is_flag=True, help="End after the play, though somebody sits at the terminal.")
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in a browser.")
@click.option("--svg", type=click.Path(dir_okay=False, writable=True), hidden=True)
def command(no_dashboard: bool, ends: bool, opens: bool, svg: str | None) -> int:
    """Watch jobs succeed, wait, fail, die with their worker and recover.

    Two worker processes on a temporary SQLite file, which is removed at the end; nothing of yours is touched. One of them
    is killed with SIGKILL in the middle of a job. The dashboard has buttons for more of it, and stays until Ctrl-C when a
    person sits at the terminal. Exits 0 if everything ended as it should.
    """
    from drumbeat.cli import output
    from drumbeat.cli.demo.main import DemoRunner
    from drumbeat.cli.demo.screen import DemoScreen, save_svg, show_address, show_result, show_staying

    console = output.console()
    with ExitStack() as around:
        board = None if no_dashboard else _make_dashboard(console)
        if board is not None:
            around.enter_context(board.listener)
            show_address(console, board.address)
            if opens:
                # Some browsers return only when they are closed.
                threading.Thread(target=webbrowser.open, args=[board.address], daemon=True).start()
        stays = board is not None and not ends and sys.stdin.isatty() and sys.stdout.isatty()
        screen = DemoScreen(console)

        def report_result(ending: DemoResult) -> None:
            show_result(console, ending)
            if svg is not None:
                save_svg(svg, screen, ending)
            if stays and board is not None:
                show_staying(console, board.address)

        # A worker that outlives its supervisor by a moment may still write there.
        folder = around.enter_context(tempfile.TemporaryDirectory(prefix="drumbeat-demo-", ignore_cleanup_errors=True))
        return asyncio.run(DemoRunner(Path(folder), screen, board=board, stays=stays).run(on_result=report_result))


def _make_dashboard(console: Console) -> DemoDashboard | None:
    """The dashboard, if its packages are there."""
    try:
        from drumbeat.cli.demo.dashboard import DemoDashboard
    except ImportError as missing:
        console.print(f"Without the dashboard, which needs packages: pip install 'drumbeat[web]' ({missing})")
        return None
    return DemoDashboard()
