"""What people see of the demo: bars and notes while it runs, then a summary. Live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from drumbeat.cli import output, words
from drumbeat.cli.demo.play import KINDS, Count, Ending
from drumbeat.cli.page import attempts_of, error_line
from drumbeat.clock import SYSTEM

if TYPE_CHECKING:
    from drumbeat.model.job import Job

TELL_EVERY = 1.0
"""Seconds between two lines of progress where there is no terminal."""
BAR = 40
SUMMARY = output.Columns(
    names=("kind", "jobs", "succeeded", "dead", "retried", "attempts", "time", ""),
    numbers=frozenset({"jobs", "succeeded", "dead", "retried", "attempts", "time"}),
)


class DemoScreen:
    """`with DemoScreen(console):` draws; `picture()` is what it would leave on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._notes: list[str] = []
        self._counts = [Count(kind=kind) for kind in KINDS]
        self._began_at = SYSTEM.monotonic()
        self._told_at = self._began_at
        self._live = (
            Live(console=console, refresh_per_second=12, get_renderable=self.picture) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        line = f"{SYSTEM.monotonic() - self._began_at:5.1f} s  {words.escaped(text)}"
        self._notes.append(line)
        if self._live is None:
            self._console.print(Text(line), soft_wrap=True)

    def say(self, text: str) -> None:
        """A line after the play."""
        self._console.print(Text(text), soft_wrap=True)

    def show(self, counts: list[Count]) -> None:
        changed, self._counts = counts != self._counts, counts
        if self._live is None and changed and SYSTEM.monotonic() - self._told_at >= TELL_EVERY:
            self._told_at = SYSTEM.monotonic()
            parts = ", ".join(f"{count.kind.name} {count.ended}/{count.kind.jobs}" for count in counts)
            self._console.print(Text(f"{self._told_at - self._began_at:5.1f} s  {parts}"), soft_wrap=True)

    def picture(self) -> RenderableType:
        return Group(_bars(self._counts), Text("\n".join(self._notes)))


def announce(console: Console, address: str) -> None:
    """Where the dashboard is: big on a terminal, a line elsewhere."""
    if console.is_terminal:
        where = Text.assemble("Dashboard  ", (address, f"bold cyan link {address}"))
        console.print(Panel(where, padding=(1, 4), expand=False, border_style="cyan"))
    else:
        console.print(Text(f"Dashboard: {address}"), soft_wrap=True)


def show_staying(console: Console, address: str) -> None:
    """How to go on."""
    console.print()
    announce(console, address)
    console.print(Text("It stays open, with buttons for more of all this. Ctrl-C ends it.", style="bold"))


def _bars(counts: Iterable[Count]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for count in counts:
        total = count.kind.jobs
        grid.add_row(
            Text(count.kind.name, style="bold"),
            ProgressBar(total=total, completed=count.ended, width=BAR, finished_style=_style(count)),
            Text(f"{count.ended}/{total}", justify="right"),
            Text(_state(count), style=_style(count)),
        )
    return grid


def _state(count: Count) -> str:
    parts = [(count.dead, "dead"), (count.running, "running"), (count.pending, "waiting")]
    told = ", ".join(f"{number} {word}" for number, word in parts if number)
    return f"{told}, {count.detail}" if count.detail else told or ("done" if count.ended == count.kind.jobs else "")


def _style(count: Count) -> str:
    if count.dead:
        return "red"
    return "green" if count.ended == count.kind.jobs else "cyan"


def show_ending(console: Console, ending: Ending) -> None:
    """The summary, the dead letters, and how the killed worker's job was saved."""
    console.print()
    console.print(_summary(ending))
    console.print()
    console.print(Text("Dead letters, kept until a person replays or discards them", style="bold"))
    for letter in ending.letters:
        console.print(_letter(letter), soft_wrap=False)
    console.print()
    console.print(Text(_recovery(ending), style="bold"))
    console.print(
        Text(f"Delayed jobs started at most {ending.latest * 1000:.0f} ms after their moment, none before it.")
    )
    if ending.problems:
        console.print(Text("Not as expected: " + "; ".join(ending.problems), style="bold red"))
        console.print(Text(words.lines(ending.log[-4_000:])))
    else:
        console.print(Text(f"Everything ended as it should, in {ending.seconds:.1f} s.", style="bold green"))


def _summary(ending: Ending) -> Table:
    rows = [
        [
            row.kind.name,
            f"{row.kind.jobs:,}",
            f"{row.succeeded:,}",
            f"{row.dead:,}",
            f"{row.retried:,}",
            f"{row.attempts:,}",
            f"{row.seconds:.1f} s",
            "ok" if row.as_expected else "NOT AS EXPECTED",
        ]
        for row in ending.rows
    ]
    return output.table(SUMMARY, rows)


def _letter(job: Job) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=10, justify="right")
    grid.add_column(overflow="fold")
    attempts = "1 attempt" if attempts_of(job) == "1" else f"{attempts_of(job)} attempts"
    died = words.NOTHING if job.finished_at is None else f"{job.finished_at:%Y-%m-%d %H:%M:%S} UTC"
    grid.add_row(Text(words.word(job.task), style="red"), Text(f"{job.id}  {attempts}  {died}"))
    grid.add_row(Text("error", style="dim"), Text(error_line(job.error, 200)))
    grid.add_row(Text("arguments", style="dim"), Text(words.arguments(job.args, 200)))
    return grid


def _recovery(ending: Ending) -> str:
    seen = ending.recovery
    if not seen.victim:
        return "No worker was killed."
    found = "was not found dead" if seen.found_dead is None else f"was found dead after {seen.found_dead:.1f} s"
    taken = (
        "nobody took its job over"
        if seen.taken_over is None
        else (f"worker {seen.heir} took its job over after {seen.taken_over:.1f} s")
    )
    return f"Worker {seen.victim} (pid {seen.pid}), killed at page {seen.page} of the report, {found}; {taken}."


def save_svg(path: str, screen: DemoScreen, ending: Ending) -> None:
    """The last screen as a picture, for the README."""
    canvas = Console(record=True, file=io.StringIO(), width=110, force_terminal=True, highlight=False, markup=False)
    canvas.print(screen.picture())
    show_ending(canvas, ending)
    # Without the fonts that rich would have a browser load from elsewhere: any monospace one will do.
    svg = re.sub(r"@font-face \{.*?\}", "", canvas.export_svg(title="drumbeat demo"), flags=re.DOTALL)
    Path(path).write_text(svg, encoding="utf-8")
