"""Run seeds, and make a failing one smaller.

A result says which promises a seed broke. `shrink` removes faults, then jobs and workers, then the drawn order, as long as the
same promise stays broken: what is left is what the failure needs.
"""

import gc
import logging
import multiprocessing
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from tests.proof.checkers import check
from tests.simulation.cluster import SimulatedRun
from tests.simulation.loop import StepLimit, Stuck
from tests.simulation.plan import draw
from tests.simulation.plan_format import Plan

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 25
CHUNKS_PER_PROCESS = 20


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    violations: tuple[str, ...]
    steps: int
    faults: int
    jobs: int
    runs: int
    trace: tuple[str, ...] = ()

    @property
    def broken(self) -> frozenset[str]:
        """The promises that were broken, by their names."""
        return frozenset(match[0] if (match := re.match(r"\w+", text)) else text for text in self.violations)


def run_plan(plan: Plan, *, keep_trace: bool = False) -> SeedResult:
    run = SimulatedRun(plan)
    try:
        violations = tuple(check(run.run()))
    except (Stuck, StepLimit) as error:
        violations = (f"{type(error).__name__}: {error}",)
    return SeedResult(
        seed=plan.seed,
        violations=violations,
        steps=run.loop.steps,
        faults=run.faults,
        jobs=len(run.history.jobs),
        runs=len(run.history.started),
        trace=tuple(run.trace) if keep_trace else (),
    )


def run_seeds(seeds: Iterable[int]) -> list[SeedResult]:
    gc.freeze()  # what is imported by now need not be looked at after each seed
    return [run_plan(draw(seed)) for seed in seeds]


def run_in_parallel(seeds: range, processes: int) -> Iterator[SeedResult]:
    """The results in the order of the seeds."""
    # Killed nodes leave open files behind, as processes on one machine would not: so a process runs few seeds. Not by
    # max_tasks_per_child: with it the pool may stop for ever when its processes end (python/cpython#115634).
    options: dict[str, Any] = {"initializer": logging.disable, "initargs": (logging.CRITICAL,)}
    spawn = multiprocessing.get_context("spawn")
    for some in _split(seeds, processes * CHUNKS_PER_PROCESS * CHUNK):
        with ProcessPoolExecutor(processes, mp_context=spawn, **options) as pool:
            for results in pool.map(run_seeds, _split(some, CHUNK)):
                yield from results


def _split(seeds: range, size: int) -> list[range]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


def shrink(plan: Plan, broken: frozenset[str], run: Callable[[Plan], SeedResult] = run_plan) -> Plan:
    """A smaller plan that breaks one of the same promises."""

    def still_fails(smaller: Plan) -> bool:
        return bool(run(smaller).broken & broken)

    for field in ("call_faults", "node_faults", "jobs"):
        kept = list(getattr(plan, field))
        width = max(1, len(kept) // 2)
        while width and kept:
            start = 0
            while start < len(kept):
                fewer = kept[:start] + kept[start + width :]
                smaller = msgspec.structs.replace(plan, **{field: tuple(fewer)})
                if still_fails(smaller):
                    plan, kept = smaller, fewer
                else:
                    start += width
            width //= 2
    simpler: list[dict[str, Any]] = [{"every": None}, {"in_order": True}, {"controller": None}, {"batch": 500}]
    for changes in simpler + [{"workers": count} for count in range(1, plan.workers)]:
        smaller = msgspec.structs.replace(plan, **changes)
        is_possible = all(fault.node < smaller.workers for fault in smaller.node_faults)
        if smaller.workers <= plan.workers and is_possible and still_fails(smaller):
            plan = smaller
    return plan


def describe_failure(result: SeedResult) -> str:
    """What a failing seed prints: what was broken, and how to repeat it."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    lines = [
        f"seed {result.seed} broke {', '.join(sorted(result.broken))}:",
        *(f"  {text}" for text in result.violations[:5]),
        f"repeat it with: make sim SEED={result.seed}   (Python {platform.python_version()}, commit {commit or 'unknown'})",
    ]
    return "\n".join(lines)
