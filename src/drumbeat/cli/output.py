"""Output of commands: tables and pages by rich for people, JSON for programs.

Lists are JSON lines, one object a line, so that they can be streamed; everything else is one JSON document. JSON is exact:
nothing is truncated or redacted, and a job's arguments are the stored text. Text cells are never read as markup.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from drumbeat.cli import formatting
from drumbeat.cli.connection import call_and_show, utc_now

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from drumbeat.app import Drumbeat
    from drumbeat.cli.options import CliTarget

T = TypeVar("T")
Row = Callable[[T, datetime], list[str]]
"""The cells of one record, at this time."""

DEFAULT_WIDTH = 200
"""Columns when the output is no terminal."""

ELASTIC_WIDTH = 12
"""Elastic columns are truncated to no fewer characters ..."""
MIN_ELASTIC_WIDTH = 6
"""... except on a very narrow screen."""
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
            raise  # rich would exit here; `failures` handles a closed pipe

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else DEFAULT_WIDTH
    return OurConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_line(line: str) -> None:
    click.echo(line)


def print_json_lines(records: Iterable[object]) -> None:
    for record in records:
        click.echo(msgspec.json.encode(record))


def print_json(record: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(record), indent=2))


def list_and_show(
    target: CliTarget,
    query: Callable[[Drumbeat], Awaitable[Sequence[T]]],
    columns: TableColumns,
    row: Row[T],
    **more: Any,
) -> None:
    """Query a list and show it, with --watch again every second; `more` as of `show_list`."""
    call_and_show(target, query, lambda records: show_list(target, records, columns, row, **more))


def show_list(
    target: CliTarget,
    records: Sequence[T],
    columns: TableColumns,
    row: Row[T],
    *,
    empty: str,
    limit: int | None = None,
    cursor: Callable[[T], str] = lambda record: record.id,  # type: ignore[attr-defined]
    to_json: Callable[[T], object] = lambda record: record,
) -> None:
    """JSON lines, or a table; {store} in `empty` is its URL. A page of `limit` records ends with `--before` for the next."""
    if target.json:
        print_json_lines(map(to_json, records))
        return
    now = utc_now()
    rows = [row(record, now) for record in records]
    show_table(columns, rows, empty=empty.replace("{store}", target.store_url))
    if len(records) == limit:
        print_line(f"The newest {limit}; go on with --before {cursor(records[-1])}, or raise --limit.")


def report(target: CliTarget, record: object, line: str) -> None:
    """The result of an action: a JSON document, or a line for people."""
    if target.json:
        print_json(record)
    else:
        print_line(line)


class TableColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a table, and how they shrink on a narrow screen."""

    names: tuple[str, ...]
    numbers: frozenset[str] = frozenset()
    """Aligned to the right."""
    elastic: frozenset[str] = frozenset()
    """May be truncated to ELASTIC_WIDTH characters."""
    droppable: tuple[str, ...] = ()
    """Left out if necessary, the first one first."""

    def fit(self, rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
        """The indexes of the columns that fit, each with its width."""
        longest = [max(len(name), *(len(row[index]) for row in rows)) for index, name in enumerate(self.names)]
        widths = {index: self._min_width(index, longest[index]) for index in range(len(self.names))}
        for name in self.droppable:
            if sum(widths.values()) + COLUMN_GAP * len(widths) <= width:
                break
            del widths[self.names.index(name)]
        left = width - sum(widths.values()) - COLUMN_GAP * len(widths)
        for index in widths:
            # No more columns can be left out: truncate the elastic ones further.
            if left < 0 and self.names[index] in self.elastic:
                less = min(-left, max(0, widths[index] - MIN_ELASTIC_WIDTH))
                widths[index] -= less
                left += less
        for index in widths:
            more = max(0, min(left, longest[index] - widths[index]))
            widths[index] += more
            left -= more
        return widths

    def _min_width(self, index: int, longest: int) -> int:
        name = self.names[index]
        return max(len(name), min(longest, ELASTIC_WIDTH)) if name in self.elastic else longest


def build_table(columns: TableColumns, rows: Sequence[Sequence[str]], width: int = DEFAULT_WIDTH) -> Table:
    """A table of text; states are coloured."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, header_style="bold")
    widths = columns.fit(rows, width)
    for index in widths:
        made.add_column(
            Text(columns.names[index]), justify="right" if columns.names[index] in columns.numbers else "left"
        )
    for row in rows:
        cells = [formatting.truncate(row[index], cell_width) for index, cell_width in widths.items()]
        made.add_row(*(Text(cell, STYLES.get(cell.split(" ")[0], ""), no_wrap=True) for cell in cells))
    return made


def show_table(columns: TableColumns, rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """A table, or the line `empty`."""
    if not rows:
        print_line(empty)
        return
    out = console()
    made = build_table(columns, rows, out.width)
    # On a very narrow screen lines wrap: a truncated id could not be copied.
    out.width = max(out.width, DEFAULT_WIDTH)
    out.print(made)


def show_page(facts: Mapping[str, str], blocks: Mapping[str, str] | None = None) -> None:
    """One record in full: names and values, then longer texts under headings."""
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
    """A record's fields and more, for --json."""
    return {name: getattr(record, name) for name in record.__struct_fields__} | more


def join_words(items: Iterable[object]) -> str:
    return ", ".join(formatting.escape(str(item)) for item in items) or formatting.EMPTY
