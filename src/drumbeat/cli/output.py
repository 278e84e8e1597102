"""How commands show things: tables and pages by rich for people, JSON for programs.

Lists are JSON lines, one object a line, so that they can be cut and streamed; everything else is one JSON document.
JSON is exact: nothing is cut or redacted, and a job's arguments are the stored text. Text cells are never read as markup.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from drumbeat.cli import formatting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from drumbeat.cli.options import CliTarget

DEFAULT_WIDTH = 200
"""Columns when the output is no terminal: a file or a pipe has no edge to fold at."""

ELASTIC_WIDTH = 12
"""To so many characters a value that may be cut is cut at most."""
MIN_ELASTIC_WIDTH = 6
"""And on a very narrow screen to so many."""
COLUMN_GAP = 2

STYLES = {
    "ready": "cyan",
    "scheduled": "blue",
    "waiting": "magenta",
    "retrying": "yellow",
    "running": "bold cyan",
    "succeeded": "green",
    "dead": "bold red",
    "cancelled": "dim",
    "alive": "green",
    "left": "dim",
    "paused": "yellow",
    "crashed": "red",
    "retry": "yellow",
}


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    class OurConsole(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would exit here; `failures` knows what a closed pipe means

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else DEFAULT_WIDTH
    return OurConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_line(line: str) -> None:
    """One line for people on stdout."""
    click.echo(line)


def print_json_lines(records: Iterable[object]) -> None:
    for record in records:
        click.echo(msgspec.json.encode(record))


def print_json(record: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(record), indent=2))


def report(target: CliTarget, record: object, line: str) -> None:
    """What an action did: a JSON document, or a line for people."""
    if target.json:
        print_json(record)
    else:
        print_line(line)


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a table, and what to do where a screen is too narrow for all of them."""

    names: tuple[str, ...]
    numbers: frozenset[str] = frozenset()
    """Stand to the right."""
    elastic: frozenset[str] = frozenset()
    """May be cut to `NARROW` characters."""
    droppable: tuple[str, ...] = ()
    """Left out if need be, the first one first."""

    def fit(self, rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
        """The places of the columns that there is room for, each with its width."""
        longest = [max(len(name), *(len(row[place]) for row in rows)) for place, name in enumerate(self.names)]
        widths = {place: self._min_width(place, longest[place]) for place in range(len(self.names))}
        for name in self.droppable:
            if sum(widths.values()) + COLUMN_GAP * len(widths) <= width:
                break
            del widths[self.names.index(name)]
        left = width - sum(widths.values()) - COLUMN_GAP * len(widths)
        for place in widths:
            # Nothing more can be left out: what may be cut is cut shorter still.
            if left < 0 and self.names[place] in self.elastic:
                less = min(-left, max(0, widths[place] - MIN_ELASTIC_WIDTH))
                widths[place] -= less
                left += less
        for place in widths:
            more = max(0, min(left, longest[place] - widths[place]))
            widths[place] += more
            left -= more
        return widths

    def _min_width(self, place: int, longest: int) -> int:
        name = self.names[place]
        return max(len(name), min(longest, ELASTIC_WIDTH)) if name in self.elastic else longest


def build_table(columns: Columns, rows: Sequence[Sequence[str]], width: int = DEFAULT_WIDTH) -> Table:
    """A table of words; those for states have their colour."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, header_style="bold")
    widths = columns.fit(rows, width)
    for place in widths:
        made.add_column(
            Text(columns.names[place]), justify="right" if columns.names[place] in columns.numbers else "left"
        )
    for row in rows:
        cells = [formatting.truncate(row[place], cell_width) for place, cell_width in widths.items()]
        made.add_row(*(Text(cell, STYLES.get(cell.split(" ")[0], ""), no_wrap=True) for cell in cells))
    return made


def show_table(columns: Columns, rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """A table, or the line that says why there is none."""
    if not rows:
        print_line(empty)
        return
    out = console()
    made = build_table(columns, rows, out.width)
    # On a very narrow screen lines go on in the next one: an id that was cut could not be copied.
    out.width = max(out.width, DEFAULT_WIDTH)
    out.print(made)


def show_page(facts: Mapping[str, str], blocks: Mapping[str, str] | None = None) -> None:
    """One thing in full: names and values, then longer texts under their headings."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(Text(name, style="dim"), Text(value, style=STYLES.get(value.split(" ")[0], "")))
    out = console()
    out.print(grid)
    for title, text in (blocks or {}).items():
        out.print(Text(f"\n{title}", style="bold"))
        out.print(Text(text), soft_wrap=True)


def record_fields(record: msgspec.Struct, **more: object) -> dict[str, Any]:
    """A record's fields as they are, and more: what --json gives."""
    return {name: getattr(record, name) for name in record.__struct_fields__} | more


def join_words(items: Iterable[object]) -> str:
    """Several words in one cell."""
    return ", ".join(formatting.escape(str(item)) for item in items) or formatting.EMPTY
