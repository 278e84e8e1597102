"""The figures as a table for people, as Markdown for RESULTS.md, and as plain data.

Each cell is the median of the rounds and, where there were several, the least and the greatest in brackets.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.contender import Contender
from bench.measures import Size
from bench.rounds import Results

METHOD = """\
Each measure starts on an empty store in a fresh folder; producer and worker are processes of their own; a handler
does nothing but write its start time to a shared memory slot, the same for all. Bulk and single enqueue are
timed inside the producer, without imports and set-up. Drained: all jobs are enqueued first, then one worker process
starts; the clock runs from the first handler's start until the library's own store holds every job as finished
(looked at every 5 ms). Pickup: from just before the call of enqueue in one process to the handler's start in an idle
worker, by CLOCK_MONOTONIC, at random gaps of 5 to 45 ms. Lateness: start minus due time, by the wall clock; early
is how many of all rounds began before it. Idle CPU is the worker's and its children's, of one core; idle statements are
those that the same worker sends in its next seconds, as the server's log shows them (PostgreSQL) or MONITOR (Redis), where
the server's own statistics also tell what ran inside scripts; memory is their resident size right after the drain. Burst:
all jobs are due at one whole second, the worker is up and idle; then one job of another queue, 0.3 s after that time.
Contention: handlers wait 10 ms, 10 at a time in each worker process; all processes begin together, when each has had a job.
Backlog: a drain beside jobs of a week from now, against one on an empty store; on Redis the server's used_memory before and
after they were enqueued, for each job, key and payload (one number) included. On PostgreSQL all share one server, and each
measure has a database of its own; on Redis each measure has a fresh server. One warm-up round is thrown away; in each round
the contenders take turns, in an order that rotates."""


@dataclass(frozen=True)
class Column:
    title: str
    figures: tuple[str, ...]
    digits: int = 0
    total: bool = False


COLUMNS = (
    Column("enqueue/s, bulk", ("enqueue_bulk",)),
    Column("with keys", ("enqueue_keys",)),
    Column("enqueue/s, single", ("enqueue_single",)),
    Column("drained/s", ("drained",)),
    Column("pickup p50 / p99 ms", ("pickup_p50", "pickup_p99"), digits=1),
    Column("late p50 / p99 / max ms", ("late_p50", "late_p99", "late_max"), digits=1),
    Column("early", ("early",), total=True),
    Column("idle CPU %", ("idle_cpu",), digits=1),
    Column("idle statements/s", ("idle_statements",), digits=1),
    Column("those inside scripts too", ("idle_calls",), digits=1),
    Column("RSS MB", ("resident_mb",)),
)
BURST_COLUMNS = (
    Column("burst: first start, ms", ("burst_first_ms",), digits=1),
    Column("burst: drained/s", ("burst_drained",)),
    Column("burst: a job of another queue, ms", ("burst_other_ms",), digits=1),
    Column("under a snapshot: drained/s", ("snapshot_drained",)),
    Column("of that without it", ("snapshot_ratio",), digits=2),
)
CONTENTION_COLUMNS = (
    *(Column(f"{number} worker{'s' * (number > 1)}: jobs/s", (f"contended_{number}",)) for number in (1, 2, 4, 8)),
    Column("most : 1", ("contended_ratio",), digits=2),
    Column("run twice", ("run_twice",)),
)
BACKLOG_COLUMNS = (
    Column("future jobs", ("backlog_jobs",)),
    Column("server memory, bytes/job", ("backlog_bytes",)),
    Column("drained/s beside the backlog", ("backlog_drained",)),
    Column("of an empty store's", ("backlog_ratio",), digits=2),
    Column("RSS growth MB", ("backlog_growth_mb",), digits=1),
)


def cell(figures: dict[str, list[float]], column: Column, size: Size) -> str:
    parts = []
    for name in column.figures:
        values = figures.get(name)
        if not values:
            return "-"
        if column.total:
            return f"{sum(values):,.0f} of {size.scheduled * len(values):,}"
        text = f"{statistics.median(values):,.{column.digits}f}"
        if len(values) > 1:
            text += f" ({min(values):,.{column.digits}f}..{max(values):,.{column.digits}f})"
        parts.append(text)
    return " / ".join(parts)


def rows(contenders: Sequence[Contender], results: Results, columns: Sequence[Column], size: Size) -> list[list[str]]:
    """A row for each contender that has at least one of the columns' figures."""
    found = []
    for contender in contenders:
        cells = [cell(results.figures.get(contender.name, {}), column, size) for column in columns]
        if any(text != "-" for text in cells):
            found.append([f"{contender.name} {contender.version()}", *cells])
    return found


def tables(contenders: Sequence[Contender], results: Results, size: Size) -> list[tuple[list[str], list[list[str]]]]:
    found = []
    for columns in (COLUMNS, BURST_COLUMNS, CONTENTION_COLUMNS, BACKLOG_COLUMNS):
        # A column in which nobody has a figure says nothing: not every engine has every measure.
        named = {name for figures in results.figures.values() for name in figures}
        told = [column for column in columns if named.issuperset(column.figures)]
        body = rows(contenders, results, told, size)
        if body:
            found.append((["", *(column.title for column in told)], body))
    return found


def show(console: Console, contenders: Sequence[Contender], results: Results, size: Size) -> None:
    for head, body in tables(contenders, results, size):
        table = Table(show_lines=True)
        for title in head:
            table.add_column(title, justify="right" if title else "left")
        for row in body:
            table.add_row(*(text.replace(" (", "\n(") for text in row))
        console.print(table)
    for failure in results.failures:
        console.print(f"failed: {failure}", style="red", markup=False)
    took = ", ".join(f"{measure} {seconds:.0f}" for measure, seconds in results.seconds.items())
    console.print(f"seconds without the warm-up: {sum(results.seconds.values()):.0f} ({took})", highlight=False)
    if results.late:
        console.print(f"not begun, the time was up (--minutes): {', '.join(results.late)}", style="red", markup=False)


def markdown(
    title: str,
    contenders: Sequence[Contender],
    missing: dict[str, str],
    results: Results,
    machine: dict[str, str],
    size: Size,
    rounds: int,
) -> str:
    lines = [f"## {title}", "", f"Median of {rounds} rounds (least..greatest); one figure alone: taken once.", ""]
    for head, body in tables(contenders, results, size):
        lines += [line(head), line(["---"] * len(head)), *map(line, body), ""]
    lines += [f"- {contender.name}: {contender.durability}; {contender.tuning}" for contender in contenders]
    lines += [f"- {name}: left out, it cannot be loaded here ({reason})" for name, reason in missing.items()]
    lines += [f"- failed: {failure}" for failure in results.failures]
    lines += [f"- not begun, the time was up: {measure}" for measure in results.late]
    lines += ["", "Machine: " + "; ".join(f"{what} {value}" for what, value in machine.items()) + ".", "", METHOD]
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def data(contenders: Sequence[Contender], missing: dict[str, str], results: Results, machine: dict[str, str]) -> Any:
    return {
        "machine": machine,
        "contenders": {
            contender.name: {
                "version": contender.version(),
                "durability": contender.durability,
                "tuning": contender.tuning,
                "figures": results.figures.get(contender.name, {}),
            }
            for contender in contenders
        },
        "missing": missing,
        "failures": results.failures,
        "not begun": results.late,
        "seconds": results.seconds,
    }
