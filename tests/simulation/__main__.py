"""`python -m tests.simulation`: run many seeds; with --seed one, with its trace, made smaller if it fails."""

import json
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor

import click
import msgspec

from tests.simulation.plan import draw
from tests.simulation.planted_bugs import BUGS, MAX_SEEDS, find
from tests.simulation.search import describe_failure, run_in_parallel, run_plan, shrink


@click.command()
@click.option("--seeds", default=2_000, show_default=True, help="How many.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Only this one: prints its plan and its trace.")
@click.option("--until-found", is_flag=True, help="Stop at the first seed that fails; print it as JSON.")
@click.option("--promise", default="", help="With --until-found: a seed that breaks this one, as L6.")
@click.option("--planted", is_flag=True, help="Plant each of the known bugs, and say which seed finds it.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True)
def main(
    seeds: int, first: int, seed: int | None, until_found: bool, promise: str, planted: bool, processes: int
) -> None:
    logging.disable(logging.CRITICAL)
    if seed is not None:
        raise SystemExit(run_one(seed))
    if until_found:
        results = (run_plan(draw(each)) for each in range(first, first + seeds))
        failing = next((each for each in results if each.violations and promise in ("", *each.broken)), None)
        print(json.dumps({"seed": failing and failing.seed, "broken": sorted(failing.broken) if failing else []}))
        return
    if planted:
        raise SystemExit(hunt(processes))
    began, failed, faults, runs, steps = time.monotonic(), 0, 0, 0, 0
    for result in run_in_parallel(range(first, first + seeds), processes):
        faults, runs, steps = faults + result.faults, runs + result.runs, steps + result.steps
        if result.violations:
            failed += 1
            print(describe_failure(result), flush=True)
    seconds = time.monotonic() - began
    print(
        f"{seeds:,} seeds in {seconds:,.0f} s on {processes} processes: {failed} failed;"
        f" {faults:,} faults, {runs:,} runs of handlers, {steps:,} steps"
    )
    raise SystemExit(1 if failed else 0)


def hunt(processes: int) -> int:
    missed = 0
    with ThreadPoolExecutor(processes) as pool:
        for bug, (seed, broken) in zip(BUGS, pool.map(find, BUGS), strict=True):
            told = "NOT FOUND" if seed is None else f"seed {seed} breaks {', '.join(broken)}"
            if seed is not None and run_plan(draw(seed)).broken & set(broken):  # then the bug has not shown itself
                seed, told = None, f"NOT FOUND: {told}, and so it does without the bug"
            missed += seed is None
            print(f"{bug.name}: {told}", flush=True)
    print(f"{len(BUGS) - missed} of {len(BUGS)} planted bugs were found, each within {MAX_SEEDS} seeds")
    return 1 if missed else 0


def run_one(seed: int) -> int:
    plan = draw(seed)
    result = run_plan(plan, keep_trace=True)
    if result.violations:
        print(describe_failure(result))
        plan = shrink(plan, result.broken)
        result = run_plan(plan, keep_trace=True)
        print("\nmade smaller:")
    for name in plan.__struct_fields__:
        value = getattr(plan, name)
        for each in value if isinstance(value, tuple) else (value,):
            print(f"  {name}: {msgspec.json.encode(each).decode()}")
    print("\n".join(result.trace))
    for text in result.violations:
        print(text)
    return 1 if result.violations else 0


if __name__ == "__main__":
    main()
