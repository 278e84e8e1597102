"""Output of commands: tables and pages by rich for people, JSON for programs.

Lists are JSON lines, one object a line, so that they can be streamed; everything else is one JSON document. JSON is exact:
nothing is truncated or redacted, and a job's arguments are the stored text. Text cells are never read as markup.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

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
    "expired": "dim",
    "alive": "green",
    "left": "dim",
    "paused": "yellow",
    "crashed": "red",
    "retry": "yellow",
    "failed": "red",
    "cancelling": "yellow",
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
    target: CliTarget, query: Callable[[Drumbeat], Awaitable[Sequence[T]]], table: TextTable[T], **more: Any
) -> None:
    """Query a list and show it, with --watch again every second; `more` as of `show_list`."""
    call_and_show(target, query, lambda records: show_list(target, records, table, **more))


def show_list(
    target: CliTarget,
    records: Sequence[T],
    table: TextTable[T],
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
    if not records:
        print_line(empty.replace("{store}", target.store_url))
        return
    table.show(records, utc_now())
    if len(records) == limit:
        print_line(f"The newest {limit}; go on with --before {cursor(records[-1])}, or raise --limit.")


def show_record(
    target: CliTarget, record: T, show: Callable[[T, datetime], None], to_json: Callable[[T], object] = lambda it: it
) -> None:
    """One record: a JSON document, or what `show` prints at this time."""
    if target.json:
        print_json(to_json(record))
    else:
        show(record, utc_now())


def report(target: CliTarget, record: object, line: str) -> None:
    """The result of an action: a JSON document, or a line for people."""
    if target.json:
        print_json(record)
    else:
        print_line(line)


class Column(NamedTuple, Generic[T]):
    """A column of a table: its cell of a record at a time, and how it shrinks on a narrow screen."""

    name: str
    cell: Callable[[T, datetime], str]
    number: bool = False
    """Aligned to the right."""
    elastic: bool = False
    """May be truncated to ELASTIC_WIDTH characters."""
    drop: int = 0
    """Left out if necessary, 1 first; 0: never."""


class TextTable(Generic[T]):
    """Records as lines of text; states are coloured."""

    def __init__(self, *columns: Column[T]) -> None:
        self.columns = columns

    def fit(self, rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
        """The indexes of the columns that fit, each with its width."""
        columns = dict(enumerate(self.columns))
        longest = {index: max(len(each.name), *(len(row[index]) for row in rows)) for index, each in columns.items()}
        widths = {
            index: max(len(each.name), min(longest[index], ELASTIC_WIDTH)) if each.elastic else longest[index]
            for index, each in columns.items()
        }
        for index in sorted((index for index in columns if columns[index].drop), key=lambda index: columns[index].drop):
            if sum(widths.values()) + COLUMN_GAP * len(widths) <= width:
                break
            del widths[index]
        left = width - sum(widths.values()) - COLUMN_GAP * len(widths)
        for index in widths:
            # No more columns can be left out: truncate the elastic ones further.
            if left < 0 and columns[index].elastic:
                less = min(-left, max(0, widths[index] - MIN_ELASTIC_WIDTH))
                widths[index] -= less
                left += less
        for index in widths:
            more = max(0, min(left, longest[index] - widths[index]))
            widths[index] += more
            left -= more
        return widths

    def build(self, records: Sequence[T], now: datetime, width: int = DEFAULT_WIDTH) -> Table:
        from rich.table import Table
        from rich.text import Text

        made = Table(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, header_style="bold")
        rows = [[column.cell(record, now) for column in self.columns] for record in records]
        widths = self.fit(rows, width)
        for index in widths:
            column = self.columns[index]
            made.add_column(Text(column.name), justify="right" if column.number else "left")
        for row in rows:
            cells = [formatting.truncate(row[index], cell_width) for index, cell_width in widths.items()]
            made.add_row(*(Text(cell, _style_of(cell), no_wrap=True) for cell in cells))
        return made

    def show(self, records: Sequence[T], now: datetime) -> None:
        out = console()
        made = self.build(records, now, out.width)
        # On a very narrow screen lines wrap: a truncated id could not be copied.
        out.width = max(out.width, DEFAULT_WIDTH)
        out.print(made)


def _style_of(value: str) -> str:
    return STYLES.get(value.split(" ")[0], "")


def show_page(
    facts: Mapping[str, str], optional: Mapping[str, str] | None = None, blocks: Mapping[str, str] | None = None
) -> None:
    """One record in full: names and values, of the optional ones those that it has, then longer texts under headings."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    given = {name: value for name, value in (optional or {}).items() if value != formatting.EMPTY}
    for name, value in {**facts, **given}.items():
        grid.add_row(Text(name, style="dim"), Text(value, style=_style_of(value)))
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
