"""`python -m bench.locks`: all about locks, engine by engine; `--engine redis --measure alone` for less."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import click

from bench import machine
from bench.locks.between import crowd, handoff
from bench.locks.places import Count, place
from bench.locks.within import alone, beside_redis_py, local

Figures = dict[str, float]


def _alone(engine: str, url: str, count: Count | None, quick: bool) -> Figures:
    return beside_redis_py(url) if engine == "redis" else asyncio.run(alone(url))


def _handoff(engine: str, url: str, count: Count | None, quick: bool) -> Figures:
    return handoff(url, 50 if quick else 300)


def _crowd(engine: str, url: str, count: Count | None, quick: bool) -> Figures:
    return crowd(url, count, processes=4, waiters=100 if quick else 1_000)


MEASURES: dict[str, Callable[[str, str, Count | None, bool], Figures]] = {
    "alone": _alone,
    "handoff": _handoff,
    "crowd": _crowd,
}


@click.command()
@click.option("--engine", "engines", multiple=True, type=click.Choice(["sqlite", "postgres", "redis"]))
@click.option("--measure", "measures", multiple=True, type=click.Choice(["local", *MEASURES]))
@click.option("--quick", is_flag=True, help="Small numbers: shows that all runs, not how fast.")
@click.option(
    "--json", "file", type=click.Path(path_type=Path), help="Write the figures of engine and measure to this file."
)
def main(engines: tuple[str, ...], measures: tuple[str, ...], quick: bool, file: Path | None) -> None:
    """Locks: uncontended, handed over, and with a crowd in line."""
    print(f"load before the run: {machine.load():.1f}{', busy' if machine.is_busy() else ''}")
    if "local" in (measures or ["local"]):
        show("local_lock", local())
    seen: dict[str, dict[str, Figures]] = {}
    for engine in engines or ("sqlite", "postgres", "redis"):
        for name in [name for name in MEASURES if name in (measures or MEASURES)]:
            with place(engine) as (url, count):
                figures = MEASURES[name](engine, url, count, quick)
            seen.setdefault(engine, {})[name] = figures
            show(f"{engine}, {name}", figures)
    if file:
        file.write_text(json.dumps(seen))


def show(title: str, figures: Figures) -> None:
    print(f"\n{title}")
    for name, figure in figures.items():
        print(f"  {name:45} {figure:10,.2f}", flush=True)


if __name__ == "__main__":
    main()
