"""The measures, in rounds; medians at the end. Compare within one run only.

plain       no-op jobs without dependencies, drained by one worker process
chains      1,000 chains of 10, enqueued before the worker starts; `bound`: each takes the result of the one before
link        one chain after the other while the worker is idle: time for each link, and for a plain pickup
chord       100,000 jobs and one that waits for all of them; `finaliser`: from the start of the last of them to its start
writers     the same in small: 16 stores side by side claim and finish in batches of 5, beside plain jobs
fan-out     100,000 children of one parent: from its end until all are due; the longest heartbeat and claim of others meanwhile
steps       a handler with 10 steps, one job at a time: time for each step
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from bench import machine
from bench.contender import Contender
from bench.contenders import CONTENDERS
from bench.engines import ENGINES
from bench.processes import ChildFailed, MeasureSetup, measure_setup, tail
from bench.sites import Site

Figures = dict[str, float]
PATIENCE = 300.0
PROGRAMS = {
    "drumbeat": "bench.apps.canvas",
    "celery": "bench.apps.celery_canvas",
    "huey": "bench.apps.huey_canvas",
}
WORKER_MODULES = {"celery": "bench.apps.celery_app", "huey": "bench.apps.huey_redis_app"}
"""What stands in the command line of a peer's worker."""


class Setup:
    """One contender at one measure, on an empty store."""

    def __init__(self, name: str, place: MeasureSetup, concurrency: int | None) -> None:
        self.program = PROGRAMS[name]
        self.place = place
        self._name = name
        self._concurrency = concurrency

    def call(self, function: str, **arguments: Any) -> Any:
        command = [sys.executable, "-m", "bench.canvas.client", self.program, function, json.dumps(arguments)]
        errors = self.place.folder / f"{function}.stderr"
        with errors.open("wb") as stderr:
            done = subprocess.run(
                command,
                env=self.place.environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
                timeout=PATIENCE,
                check=False,
            )
        if done.returncode != 0:
            raise ChildFailed(f"{function}: {tail(errors)}")
        return json.loads(done.stdout.splitlines()[-1])

    @contextmanager
    def worker(self) -> Iterator[None]:
        contender = self.place.contender
        if self._name == "drumbeat":
            options = ["--concurrency", str(self._concurrency or 100)]
            command = [sys.executable, "-m", "drumbeat", "run", f"{self.program}:app", *options]
        else:
            command = [each.replace(WORKER_MODULES[self._name], self.program) for each in contender.worker_command()]
        with self.place._run_worker(command, "worker", {}):
            yield

    def wait(self, upto: int) -> None:
        self.place.ledger.wait(upto, seconds=PATIENCE)


Measure = Callable[[Callable[..., Any], "Sizes"], Figures]


class Sizes:
    def __init__(self, quick: bool) -> None:
        self.chains, self.length = (50, 5) if quick else (1_000, 10)
        self.chord = 2_000 if quick else 100_000
        self.peer_chord = 200 if quick else 5_000
        self.written = 500 if quick else 10_000
        self.pickups = 5 if quick else 100
        self.stepping = 10 if quick else 100


def rate_of(setup: Setup, count: int) -> float:
    setup.wait(count)
    stamps = setup.place.ledger.timestamps(0, count)
    return count / (max(stamps) - min(stamps)) * 1e9


def plain(prepare: Callable[..., Any], sizes: Sizes) -> Figures:
    figures: Figures = {}
    for name, count in (("plain", sizes.chains * sizes.length), ("plain_many", sizes.chord)):
        with prepare(count) as setup:
            setup.call("fill_plain", count=count)
            with setup.worker():
                figures[name] = rate_of(setup, count)
    return figures


def chains(prepare: Callable[..., Any], sizes: Sizes, *, bound: bool = False) -> Figures:
    count = sizes.chains * sizes.length
    with prepare(count) as setup:
        setup.call("fill_chains", chains=sizes.chains, length=sizes.length, bound=bound)
        with setup.worker():
            return {"bound_chains" if bound else "chains": rate_of(setup, count)}


def bound_chains(prepare: Callable[..., Any], sizes: Sizes) -> Figures:
    return chains(prepare, sizes, bound=True)


def link(prepare: Callable[..., Any], sizes: Sizes) -> Figures:
    length = 10
    times = max(2, sizes.pickups // length)
    with prepare((times + 1) * length) as setup, setup.worker():
        links = setup.call("time_links", length=length, times=times)
    with prepare(sizes.pickups + 1) as setup, setup.worker():
        pickups = setup.call("time_pickups", count=sizes.pickups)
    return {"link_ms": statistics.median(links), "pickup_ms": statistics.median(pickups)}


def chord(prepare: Callable[..., Any], sizes: Sizes) -> Figures:
    count = sizes.chord
    with prepare(count + 1) as setup:
        setup.call("fill_chord", count=count)
        with setup.worker():
            rate = rate_of(setup, count + 1)
    stamps = setup.place.ledger.timestamps(0, count + 1)
    return {"chord": rate, "finaliser_ms": (stamps[count] - max(stamps[:count])) / 1e6}


def peer_chord(prepare: Callable[..., Any], sizes: Sizes) -> Figures:
    with prepare(sizes.peer_chord + 1) as setup:
        setup.call("fill_chord", count=sizes.peer_chord)
        with setup.worker():
            return {"chord": rate_of(setup, sizes.peer_chord + 1)}


def writers(prepare: Callable[..., Any], sizes: Sizes) -> Figures:
    figures: Figures = {}
    for name, fill, count in (
        ("written_plain", "fill_plain", sizes.written),
        ("written_chord", "fill_chord", sizes.written - 1),
    ):
        with prepare(1) as setup:
            setup.call(fill, count=count)
            figures[name] = sizes.written / setup.call("drain_by_hand", writers=16, batch=5, jobs=sizes.written)
    return figures


def fan_out(prepare: Callable[..., Any], sizes: Sizes) -> Figures:
    with prepare(1) as setup:
        told = setup.call("fan_out", count=sizes.chord)
    return {
        "fan_out_s": told["seconds"],
        "longest_beat_ms": told["beat_ms"],
        "longest_exchange_ms": told["exchange_ms"],
    }


def steps(prepare: Callable[..., Any], sizes: Sizes) -> Figures:
    jobs, number = sizes.stepping, 10
    with prepare(2 * jobs, concurrency=1) as setup:
        setup.call("fill_steps", jobs=jobs, steps=number)
        with setup.worker():
            setup.wait(2 * jobs)
        stamps = setup.place.ledger.timestamps(0, 2 * jobs)
    return {"step_ms": statistics.median(b - a for a, b in zip(stamps[::2], stamps[1::2], strict=True)) / 1e6 / number}


MEASURES: dict[str, Callable[..., Figures]] = {
    "plain": plain,
    "chains": chains,
    "bound": bound_chains,
    "link": link,
    "chord": chord,
    "writers": writers,
    "fan-out": fan_out,
    "steps": steps,
}
PEERS: dict[str, dict[str, Callable[..., Figures]]] = {
    "celery": {"chains": chains, "chord": peer_chord},
    "huey": {"chains": chains},
}
RATIOS = {
    "chains : plain": ("chains", "plain", "at least 0.5"),
    "bound chains : plain": ("bound_chains", "plain", "at least 0.35"),
    "chord : plain": ("chord", "plain_many", "at least 0.7"),
    "writers: chord : plain": ("written_chord", "written_plain", "at least 0.6"),
    "link : pickup": ("link_ms", "pickup_ms", "at most 2"),
}


def prepare_for(contender: Contender, name: str, site: Site) -> Callable[..., Any]:
    @contextmanager
    def prepare(slots: int, *, concurrency: int | None = None) -> Iterator[Setup]:
        with measure_setup(contender, slots, site) as place:
            yield Setup(name, place, concurrency)

    return prepare


def show(name: str, rounds: list[Figures]) -> None:
    click.echo(f"{name}, {len(rounds)} rounds: median (least..greatest)")
    names = list(dict.fromkeys(each for figures in rounds for each in figures))
    for each in names:
        values = [figures[each] for figures in rounds if each in figures]
        click.echo(f"  {each}: {statistics.median(values):,.2f} ({min(values):,.2f}..{max(values):,.2f})")
    for title, (one, other, goal) in RATIOS.items():
        ratios = [figures[one] / figures[other] for figures in rounds if one in figures and other in figures]
        if ratios:
            spread = f"({min(ratios):.2f}..{max(ratios):.2f})"
            click.echo(f"  {title} = {statistics.median(ratios):.2f} {spread}, goal: {goal}")


@click.command()
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(ENGINES)), help="This alone; else all.")
@click.option("--measure", "measures", multiple=True, type=click.Choice(list(MEASURES)), help="Take these alone.")
@click.option("--rounds", default=3, type=click.IntRange(1), show_default=True)
@click.option("--quick", is_flag=True, help="Small numbers: shows that all runs, not how fast.")
@click.option("--peers/--no-peers", default=True, help="Celery's canvas and Huey's pipelines, on Redis.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every figure there.")
def main(
    engines: tuple[str, ...], measures: tuple[str, ...], rounds: int, quick: bool, peers: bool, json_file: Path | None
) -> None:
    """Jobs that wait for jobs, beside plain ones in the same run."""
    sizes, told = Sizes(quick), dict[str, dict[str, list[Figures]]]()
    if machine.is_busy():
        click.echo(f"The machine is busy (load {machine.load():.2f}): these figures are not to be kept.")
    for engine in engines or ENGINES:
        chosen = {"drumbeat": {name: MEASURES[name] for name in measures or MEASURES}}
        if peers and engine == "redis":
            chosen |= {peer: {n: m for n, m in of.items() if n in (measures or MEASURES)} for peer, of in PEERS.items()}
        seen: dict[str, list[Figures]] = {name: [] for name in chosen}
        with ENGINES[engine].site(None) as site:
            for number in range(rounds):
                for name, of in chosen.items():
                    contender = CONTENDERS[engine][name]
                    contender.load()
                    figures: Figures = {}
                    for title, measure in of.items():
                        figures |= measure(prepare_for(contender, name, site), sizes)
                        click.echo(f"{engine}, round {number + 1}, {name}: {title} done", err=True)
                    seen[name].append(figures)
        told[engine] = seen
        for name, each in seen.items():
            show(f"{engine}: {name}", each)
    if json_file:
        json_file.write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
