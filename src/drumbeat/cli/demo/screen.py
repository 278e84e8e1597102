"""The display of the demo: bars and notes while it runs, then a summary. Live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from drumbeat.cli import formatting, output
from drumbeat.cli.connection import utc_now
from drumbeat.cli.demo.scenario import KINDS, DemoResult, KindProgress, KindResult
from drumbeat.cli.job_view import format_attempts
from drumbeat.cli.output import Column
from drumbeat.clock import SYSTEM

if TYPE_CHECKING:
    from drumbeat.core.job import Job

PROGRESS_INTERVAL = 1.0
"""Seconds between two lines of progress where there is no terminal."""
BAR_WIDTH = 40
SUMMARY: output.TextTable[KindResult] = output.TextTable(
    Column("kind", lambda row, _: row.kind.name),
    Column("jobs", lambda row, _: f"{row.kind.jobs:,}", number=True),
    Column("succeeded", lambda row, _: f"{row.succeeded:,}", number=True),
    Column("dead", lambda row, _: f"{row.dead:,}", number=True),
    Column("retried", lambda row, _: f"{row.retried:,}", number=True),
    Column("attempts", lambda row, _: f"{row.attempts:,}", number=True),
    Column("time", lambda row, _: f"{row.seconds:.1f} s", number=True),
    Column("", lambda row, _: "ok" if row.as_expected else "NOT AS EXPECTED"),
)


class DemoScreen:
    """`with screen.live:` draws on a terminal; `render()` is what it leaves there."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._notes: list[str] = []
        self._counts = [KindProgress(kind) for kind in KINDS]
        self._began_at = SYSTEM.monotonic()
        self._shown_at = self._began_at
        self.live: AbstractContextManager[object] = (
            Live(console=console, refresh_per_second=12, get_renderable=self.render)
            if console.is_terminal
            else nullcontext()
        )

    def note(self, text: str) -> None:
        line = f"{SYSTEM.monotonic() - self._began_at:5.1f} s  {formatting.escape(text)}"
        self._notes.append(line)
        if not self._console.is_terminal:
            self._console.print(Text(line), soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line after the scenario."""
        self._console.print(Text(text), soft_wrap=True)

    def show(self, counts: list[KindProgress]) -> None:
        changed, self._counts = counts != self._counts, counts
        if not self._console.is_terminal and changed and SYSTEM.monotonic() - self._shown_at >= PROGRESS_INTERVAL:
            self._shown_at = SYSTEM.monotonic()
            parts = ", ".join(f"{count.kind.name} {count.ended}/{count.kind.jobs}" for count in counts)
            self._console.print(Text(f"{self._shown_at - self._began_at:5.1f} s  {parts}"), soft_wrap=True)

    def render(self) -> RenderableType:
        return Group(_bars(self._counts), Text("\n".join(self._notes)))


def show_address(console: Console, address: str) -> None:
    """The address of the dashboard: a panel on a terminal, a line elsewhere."""
    if console.is_terminal:
        where = Text.assemble("Dashboard  ", (address, f"bold cyan link {address}"))
        console.print(Panel(where, padding=(1, 4), expand=False, border_style="cyan"))
    else:
        console.print(Text(f"Dashboard: {address}"), soft_wrap=True)


def show_staying(console: Console, address: str) -> None:
    console.print()
    show_address(console, address)
    console.print(Text("It stays open, with buttons to try more. Ctrl-C ends it.", style="bold"))


def _bars(counts: Iterable[KindProgress]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for count in counts:
        total = count.kind.jobs
        grid.add_row(
            Text(count.kind.name, style="bold"),
            ProgressBar(total=total, completed=count.ended, width=BAR_WIDTH, finished_style=_style(count)),
            Text(f"{count.ended}/{total}", justify="right"),
            Text(_describe_progress(count), style=_style(count)),
        )
    return grid


def _describe_progress(count: KindProgress) -> str:
    seen = count.counts
    pending = seen.ready + seen.scheduled + seen.retrying + seen.waiting
    parts = [(seen.dead, "dead"), (seen.running, "running"), (pending, "waiting")]
    text = ", ".join(f"{number} {word}" for number, word in parts if number)
    return f"{text}, {count.detail}" if count.detail else text or ("done" if count.ended == count.kind.jobs else "")


def _style(count: KindProgress) -> str:
    if count.counts.dead:
        return "red"
    return "green" if count.ended == count.kind.jobs else "cyan"


def show_result(console: Console, result: DemoResult) -> None:
    """The summary, the dead letters, and how the killed worker's job was recovered."""
    console.print()
    console.print(SUMMARY.build(result.rows, utc_now()))
    console.print()
    console.print(Text("Dead letters, kept until a person replays or discards them", style="bold"))
    for letter in result.dead_letters:
        console.print(_dead_letter_table(letter), soft_wrap=False)
    console.print()
    console.print(Text(_describe_recovery(result), style="bold"))
    console.print(Text(f"Delayed jobs started at most {result.latest * 1000:.0f} ms after they were due, none before."))
    if result.problems:
        console.print(Text("Not as expected: " + "; ".join(result.problems), style="bold red"))
        console.print(Text(formatting.escape_lines(result.log[-4_000:])))
    else:
        console.print(Text(f"Everything ended as expected, in {result.seconds:.1f} s.", style="bold green"))


def _dead_letter_table(job: Job) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=10, justify="right")
    grid.add_column(overflow="fold")
    attempts = "1 attempt" if format_attempts(job) == "1" else f"{format_attempts(job)} attempts"
    died = formatting.EMPTY if job.finished_at is None else f"{job.finished_at:%Y-%m-%d %H:%M:%S} UTC"
    grid.add_row(Text(formatting.format_value(job.task), style="red"), Text(f"{job.id}  {attempts}  {died}"))
    grid.add_row(Text("error", style="dim"), Text(formatting.format_error(job.error, 200)))
    grid.add_row(Text("arguments", style="dim"), Text(formatting.format_arguments(job.args, 200)))
    return grid


def _describe_recovery(result: DemoResult) -> str:
    seen = result.recovery
    if seen is None:
        return "No worker was killed."
    found = (
        "was not found dead" if seen.found_dead_after is None else f"was found dead after {seen.found_dead_after:.1f} s"
    )
    taken = "nobody took its job over"
    if seen.taken_over is not None:
        taken = f"worker {seen.taken_over[0]} took its job over after {seen.taken_over[1]:.1f} s"
    victim = f"Worker {seen.victim.id} (pid {seen.victim.pid})"
    return f"{victim}, killed at page {seen.page} of the report, {found}; {taken}."


def save_svg(path: str, screen: DemoScreen, result: DemoResult) -> None:
    """The last screen as a picture, for the README."""
    canvas = Console(record=True, file=io.StringIO(), width=110, force_terminal=True, highlight=False, markup=False)
    canvas.print(screen.render())
    show_result(canvas, result)
    # Without the web fonts that rich references: any monospace font will do.
    svg = re.sub(r"@font-face \{.*?\}", "", canvas.export_svg(title="drumbeat demo"), flags=re.DOTALL)
    Path(path).write_text(svg, encoding="utf-8")
