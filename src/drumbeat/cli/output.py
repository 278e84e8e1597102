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

from drumbeat.cli import words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 200
"""Columns when the output is no terminal: a file or a pipe has no edge to fold at."""

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
    width = None if stream.isatty() or os.environ.get("COLUMNS") else WIDE
    return OurConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def say(line: str) -> None:
    """One line for people on stdout."""
    click.echo(line)


def json_lines(records: Iterable[object]) -> None:
    for record in records:
        click.echo(msgspec.json.encode(record))


def json_document(record: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(record), indent=2))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[str] = ()) -> Table:
    """A table of words; columns named in `numbers` stand to the right, words for states have their colour."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    made = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(
            Text(column),
            justify="right" if column in right else "left",
            no_wrap=column in ("id", "instance"),
            overflow="fold",
        )
    for row in rows:
        made.add_row(*(Text(cell, style=STYLES.get(cell.split(" ")[0], "")) for cell in row))
    return made


def show_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[str] = (), empty: str
) -> None:
    """A table, or the line that says why there is none."""
    if rows:
        console().print(table(columns, rows, numbers=numbers))
    else:
        say(empty)


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
        out.print(Text(text))


def fields(record: msgspec.Struct, **more: object) -> dict[str, Any]:
    """A record's fields as they are, and more: what --json gives."""
    return {name: getattr(record, name) for name in record.__struct_fields__} | more


def seen(items: Iterable[object]) -> str:
    """Several words in one cell."""
    return ", ".join(words.escaped(str(item)) for item in items) or words.NOTHING
