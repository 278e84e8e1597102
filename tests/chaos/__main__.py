"""`python -m tests.chaos`: run chaos on one engine, and print the verdict as JSON. The folder of a failed run is kept."""

import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from tests.chaos.run import ChaosPlan, ChaosRun
from tests.chaos.stores import STORES

FAULT_INTERVAL = 1.8
"""Seconds from one fault to the next."""


@click.command()
@click.option("--engine", type=click.Choice(sorted(STORES)), required=True)
@click.option("--seconds", default=600.0, show_default=True)
@click.option("--seed", type=int, help="Of faults. Default: drawn.")
@click.option("--faults", type=int, help="How many. Default: one in 1.8 s.")
@click.option("--lease", default=10.0, show_default=True, help="dead_after of the workers, in seconds.")
@click.option("--rate", default=150.0, show_default=True, help="Jobs a second of each bulk producer.")
@click.option("--single", is_flag=True, help="One fault at a time, to measure recoveries; --faults is not used.")
@click.option("--small", is_flag=True, help="Three kinds of processes instead of twelve.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where everything is written. Default: a temporary one."
)
def main(
    engine: str,
    seconds: float,
    seed: int | None,
    faults: int | None,
    lease: float,
    rate: float,
    single: bool,
    small: bool,
    folder: Path | None,
) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    plan = ChaosPlan(
        engine=engine,
        seconds=seconds,
        seed=random.SystemRandom().randrange(1_000_000) if seed is None else seed,
        faults=faults if faults is not None else max(1, round(seconds / FAULT_INTERVAL)),
        folder=Path(tempfile.mkdtemp(prefix=f"drumbeat-chaos-{engine}-")) if folder is None else folder,
        lease=lease,
        rate=rate,
        is_small=small,
        is_single=single,
    )
    try:
        verdict = asyncio.run(ChaosRun(plan).run())
    except BaseException:
        print(f"the run has failed; everything is in {plan.folder}", file=sys.stderr)
        raise
    if verdict.passed and folder is None:
        shutil.rmtree(plan.folder, ignore_errors=True)
        verdict.folder = None
    text = msgspec.json.format(msgspec.json.encode(verdict), indent=2).decode()
    print(text)
    if verdict.folder is not None:
        (plan.folder / "verdict.json").write_text(text)
    if not verdict.passed:
        print(f"{verdict.violation_count} violations; everything is in {plan.folder}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
