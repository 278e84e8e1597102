"""This source against that of an older commit, in turns: `python -m bench.pairs --base REV`.

The harness is today's for both; only the package that producers and workers import is another. A pair is one run of each, in
an order that alternates, so that what the machine does meanwhile meets both. Told are the medians and, for each figure, the
median of the pairs' ratios with the smallest and the largest.
"""

import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import click

from bench.engines import ENGINES
from bench.processes import ROOT, SOURCE_NAME

MEASURES = ("enqueue", "drain", "latency", "handoff")
FIGURES = {
    "enqueue_bulk": "enqueue/s, bulk",
    "enqueue_cpu_us": "enqueue, bulk: client CPU µs for a job",
    "enqueue_single": "enqueue/s, single",
    "drained": "drained/s",
    "drain_cpu_us": "drain: worker CPU µs for a job",
    "drain_server_cpu_us": "drain: server CPU µs for a job",
    "pickup_p50": "pickup p50 ms",
    "pickup_p99": "pickup p99 ms",
    "handoff_p50": "lock, from process to process: p50 ms",
    "handoff_p99": "lock, from process to process: p99 ms",
}


@click.command()
@click.option("--base", required=True, help="The commit to compare with.")
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(ENGINES)), help="This alone; else all.")
@click.option("--measure", "measures", multiple=True, default=MEASURES, show_default=True)
@click.option("--pairs", default=5, type=click.IntRange(1), show_default=True)
def main(base: str, engines: Sequence[str], measures: Sequence[str], pairs: int) -> None:
    """Print one Markdown table for each engine."""
    with tempfile.TemporaryDirectory(prefix="drumbeat-base-") as folder:
        extract(base, Path(folder))
        sources = {"base": Path(folder) / "src", "now": ROOT / "src"}
        for engine in engines or ENGINES:
            seen: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
            for number in range(pairs):
                for name in ("base", "now") if number % 2 == 0 else ("now", "base"):
                    seen[name].append(run(sources[name], engine, measures))
                    print(f"{engine}, pair {number + 1} of {pairs}: {name} done", file=sys.stderr, flush=True)
            print(table(engine, base, seen), flush=True)


def extract(revision: str, folder: Path) -> None:
    packed = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def run(source: Path, engine: str, measures: Sequence[str]) -> dict[str, float]:
    """One round of the bench with the package from `source`; it is found before the installed one."""
    figures: dict[str, float] = {}
    jobs = [option for measure in measures if measure != "handoff" for option in ("--measure", measure)]
    if jobs:
        told = run_bench(source, ["bench", "--engine", engine, "--only", "drumbeat", *jobs, "--rounds", "1"])[engine]
        if told["failures"]:
            raise click.ClickException(f"{engine}: {told['failures']}")
        figures |= {name: values[0] for name, values in told["contenders"]["drumbeat"]["figures"].items()}
    if "handoff" in measures:
        told = run_bench(source, ["bench.locks", "--engine", engine, "--measure", "handoff"])[engine]["handoff"]
        figures |= {"handoff_p50": told["p50 ms"], "handoff_p99": told["p99 ms"]}
    return figures


def run_bench(source: Path, arguments: Sequence[str]) -> Any:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        environment = {**os.environ, SOURCE_NAME: str(source)}
        command = [sys.executable, "-m", *arguments, "--json", file.name]
        subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True)
        return json.loads(Path(file.name).read_text())


def table(engine: str, base: str, seen: dict[str, list[dict[str, float]]]) -> str:
    lines = [
        f"| {ENGINES[engine].title} | {base[:9]} | now | now : base, median of pairs (least..greatest) |",
        "| --- " * 4 + "|",
    ]
    for figure, title in FIGURES.items():
        pairs = [
            (before[figure], now[figure])
            for before, now in zip(seen["base"], seen["now"], strict=True)
            if figure in before and figure in now
        ]
        if pairs:
            ratios = [now / before for before, now in pairs]
            medians = [f"{statistics.median(values):,.1f}" for values in zip(*pairs, strict=True)]
            spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f})"
            lines.append(f"| {title} | {medians[0]} | {medians[1]} | {spread} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
