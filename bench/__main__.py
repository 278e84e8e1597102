"""`python -m bench`: run the contenders, print the table."""

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from bench import machine, report
from bench.contenders import CONTENDERS
from bench.measures import FULL, MEASURES, QUICK
from bench.rounds import available, run


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(CONTENDERS)), help="Run these alone; may be repeated.")
@click.option("--measure", "measures", multiple=True, type=click.Choice(list(MEASURES)), help="Take these alone.")
@click.option("--rounds", default=3, type=click.IntRange(1), show_default=True, help="How often each measure is taken.")
@click.option("--quick", is_flag=True, help="Small numbers: shows that all runs, not how fast.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every figure there.")
@click.option("--markdown", is_flag=True, help="Print the block for RESULTS.md as well.")
@click.option(
    "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where the stores are made."
)
def main(
    only: tuple[str, ...],
    measures: tuple[str, ...],
    rounds: int,
    quick: bool,
    json_file: Path | None,
    markdown: bool,
    folder: Path | None,
) -> None:
    """Drumbeat and its peers on this machine, in one run."""
    # Into a pipe or a log rich would fold the table to 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=170)
    chosen, missing = available([CONTENDERS[name] for name in only or CONTENDERS])
    for name, why in missing.items():
        console.print(f"{name} is left out: it cannot be loaded here ({why})", markup=False)
    if not chosen:
        raise click.ClickException("nothing to run")
    size = QUICK if quick else FULL
    facts = machine.describe(folder) | {"load before the run": f"{machine.load():.2f}"}
    if machine.is_busy():
        facts["busy"] = "yes, with other work: the figures show that everything runs, not how fast"
        console.print(
            f"The machine is busy (load {machine.load():.2f}): these figures are not to be kept.", style="yellow"
        )
    with console.status("starting") as status:
        results = run(
            chosen,
            measures or list(MEASURES),
            rounds=rounds,
            size=size,
            parent=folder,
            tell=lambda what: status.update(what),
        )
    report.show(console, chosen, results, size)
    if markdown:
        print(report.markdown(chosen, missing, results, facts, size, rounds))
    if json_file:
        json_file.write_text(json.dumps(report.data(chosen, missing, results, facts), indent=2))


main()
