"""`python -m tests.chaos`: run chaos on one engine, and print the verdict as JSON. The folder of a failed run is kept."""

import asyncio
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from tests.chaos.run import ChaosPlan, ChaosRun
from tests.chaos.stores import STORES
from tests.chaos.topologies import PLAIN, TOPOLOGIES, find_obstacle, find_store

FAULT_INTERVAL = 1.8
"""Seconds from one fault to the next."""


ISOLATED = "CHAOS_ISOLATED"


def isolate(namespaces: tuple[str, ...]) -> None:
    """Start this program again in namespaces of its own: what it mounts and the networks it makes end with it."""
    if namespaces and ISOLATED not in os.environ:
        os.environ[ISOLATED] = "yes"
        os.execvp("unshare", ["unshare", *namespaces, "--", sys.executable, "-m", "tests.chaos", *sys.argv[1:]])


@click.command()
@click.option("--engine", type=click.Choice(sorted(STORES)), required=True)
@click.option("--topology", type=click.Choice(list(TOPOLOGIES)), default=PLAIN, show_default=True)
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
    topology: str,
    seconds: float,
    seed: int | None,
    faults: int | None,
    lease: float,
    rate: float,
    single: bool,
    small: bool,
    folder: Path | None,
) -> None:
    if (obstacle := find_obstacle(topology, engine)) is not None:
        print(f"left out: {topology} on {engine}: {obstacle}", file=sys.stderr)
        return
    isolate(find_store(topology, engine).isolation)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    plan = ChaosPlan(
        engine=engine,
        topology=topology,
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
