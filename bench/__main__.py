"""`python -m bench`: run the contenders, print the tables."""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench import machine, report
from bench.catalogue import MEASURES
from bench.engines import ENGINES, Engine
from bench.rounds import find_available, run

NAMES = list(dict.fromkeys(name for engine in ENGINES.values() for name in engine.contenders))


@click.command()
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(ENGINES)), help="This alone; else all.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Run these alone; may be repeated.")
@click.option("--measure", "measures", multiple=True, type=click.Choice(list(MEASURES)), help="Take these alone.")
@click.option("--rounds", default=3, type=click.IntRange(1), show_default=True, help="How often each measure is taken.")
@click.option("--quick", is_flag=True, help="Small numbers: shows that all runs, not how fast.")
@click.option("--whole", is_flag=True, help="Large bursts and backlogs, a long snapshot; give it more --minutes.")
@click.option(
    "--minutes", default=15.0, show_default=True, help="For each engine: after that no measure is begun any more."
)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every figure there.")
@click.option("--markdown", is_flag=True, help="Print the block for RESULTS.md as well.")
@click.option(
    "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where SQLite's files are made."
)
def main(engines: tuple[str, ...], json_file: Path | None, folder: Path | None, **how: Any) -> None:
    """Drumbeat and its peers on this machine, in one run; one engine after the other."""
    # As Ctrl-C does: otherwise workers and the server would outlive us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Into a pipe or a log rich would fold the table to 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=170)
    figures = {name: measure(ENGINES[name], console, folder, **how) for name in engines or ENGINES}
    if json_file:
        json_file.write_text(json.dumps(figures, indent=2))


def measure(
    engine: Engine,
    console: Console,
    folder: Path | None,
    *,
    only: tuple[str, ...],
    measures: tuple[str, ...],
    rounds: int,
    quick: bool,
    whole: bool,
    minutes: float,
    markdown: bool,
) -> Any:
    console.print(f"{engine.title}: at most {minutes:g} minutes, and what has begun by then.", highlight=False)
    chosen, missing = find_available(
        [engine.contenders[name] for name in only or engine.contenders if name in engine.contenders]
    )
    for name, reason in missing.items():
        console.print(f"{name} is left out: it cannot be loaded here ({reason})", markup=False)
    if not chosen:
        console.print("nothing to run")
        return {}
    size = engine.quick if quick else engine.whole if whole else engine.usual
    facts = machine.describe(folder) | {"load before the run": f"{machine.load():.2f}"}
    if machine.is_busy():
        facts["busy"] = "yes, with other work: the figures show that everything runs, not how fast"
        console.print(
            f"The machine is busy (load {machine.load():.2f}): these figures are not to be kept.", style="yellow"
        )
    with console.status("starting") as status, engine.site(folder) as site:
        facts |= site.facts()
        results = run(
            engine,
            chosen,
            measures,
            rounds=rounds,
            size=size,
            site=site,
            deadline=time.monotonic() + minutes * 60,
            tell=lambda what: status.update(f"{engine.title}, {what}"),
        )
    report.show(console, chosen, results, size)
    if markdown:
        print(report.markdown(engine.title, chosen, missing, results, facts, size, rounds))
    return report.data(chosen, missing, results, facts)


main()
