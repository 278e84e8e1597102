"""`drumbeat demo`: a scenario of about 15 seconds on a temporary SQLite file, and its dashboard."""

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
@click.option("--no-dashboard", is_flag=True, help="Only the scenario, in this terminal.")
@click.option("--exit", "ends", is_flag=True, help="Exit after the scenario, also on a terminal.")
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in a browser.")
@click.option("--svg", type=click.Path(dir_okay=False, writable=True), hidden=True)
def command(no_dashboard: bool, ends: bool, opens: bool, svg: str | None) -> int:
    """Watch jobs succeed, wait, fail, die with their worker and recover.

    Two worker processes on a temporary SQLite file, which is removed at the end; your files are not touched. One of them is
    killed with SIGKILL in the middle of a job. The dashboard has buttons to try more, and on a terminal stays until Ctrl-C.
    Exits 0 if everything ended as expected.
    """
    from drumbeat.cli import output
    from drumbeat.cli.demo.main import run_demo
    from drumbeat.cli.demo.screen import DemoScreen, save_svg, show_address, show_result, show_staying

    console = output.console()
    with ExitStack() as around:
        dashboard = None if no_dashboard else _make_dashboard(console)
        if dashboard is not None:
            around.enter_context(dashboard.listener)
            show_address(console, dashboard.address)
            if opens:
                # Some browsers block until they are closed.
                threading.Thread(target=webbrowser.open, args=[dashboard.address], daemon=True).start()
        stays = dashboard is not None and not ends and sys.stdin.isatty() and sys.stdout.isatty()
        screen = DemoScreen(console)

        def report_result(result: DemoResult) -> None:
            show_result(console, result)
            if svg is not None:
                save_svg(svg, screen, result)
            if stays and dashboard is not None:
                show_staying(console, dashboard.address)

        # A worker that briefly outlives its supervisor may still write there.
        folder = around.enter_context(tempfile.TemporaryDirectory(prefix="drumbeat-demo-", ignore_cleanup_errors=True))
        return asyncio.run(run_demo(Path(folder), screen, dashboard=dashboard, stays=stays, on_result=report_result))


def _make_dashboard(console: Console) -> DemoDashboard | None:
    """The dashboard, if its packages are installed."""
    try:
        from drumbeat.cli.demo.dashboard import DemoDashboard
    except ImportError as missing:
        console.print(f"Without the dashboard, which needs packages: pip install 'drumbeat[web]' ({missing})")
        return None
    return DemoDashboard()
