"""Seeds of the simulation keep all promises; the same seed gives the same trace; a failing one is made smaller.

`make system` runs more of them, `make sim` many more, and plants bugs to see that they are found.
"""

import hashlib
import os
import subprocess
import sys

import msgspec
import pytest

from tests.planting import PACKAGE, PlantedBug
from tests.simulation import search
from tests.simulation.plan import draw
from tests.simulation.plan_format import Plan
from tests.simulation.planted_bugs import BUGS
from tests.simulation.search import ROOT, SeedResult, describe_failure, run_in_parallel, run_plan, shrink

SEEDS = range(500 if os.environ.get("DRUMBEAT_FULL") else 200)
CHUNK = 50


def test_more_seeds_than_the_processes_may_run_are_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "CHUNK", 1)
    monkeypatch.setattr(search, "CHUNKS_PER_PROCESS", 2)
    assert [result.seed for result in run_in_parallel(range(5), 1)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, CHUNK))
def test_seeds_keep_all_promises(first: int) -> None:
    # In a process of its own: killed nodes leave their files open.
    results = run_in_parallel(range(first, first + CHUNK), 1)
    failed = [describe_failure(result) for result in results if result.violations]
    assert not failed, "\n".join(failed)


def trace_digests(seeds: range) -> list[str]:
    results = [run_plan(draw(seed), keep_trace=True) for seed in seeds]
    return [f"{each.steps} {hashlib.sha256(repr(each.trace).encode()).hexdigest()}" for each in results]


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    program = "from tests.simulation.test_seeds import trace_digests; print(trace_digests(range(900, 910)))"
    told = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "4242")
    ]
    assert told[0] == told[1]
    assert len(set(told[0].split("', '"))) == 10


def test_a_failing_plan_is_made_smaller() -> None:
    plan = draw(11)
    needed = plan.jobs[3]

    def run(smaller: Plan) -> SeedResult:
        violations = ("J1: lost",) if needed in smaller.jobs else ()
        return SeedResult(seed=11, violations=violations, steps=1, faults=0, jobs=0, runs=0)

    smaller = shrink(plan, frozenset({"J1"}), run)
    assert smaller.jobs == (needed,)
    assert (smaller.faults, smaller.every, smaller.in_order, smaller.workers) == (0, None, True, 1)


def test_a_plan_without_faults_has_exactly_one_run_for_each_job() -> None:
    plan = draw(7)
    jobs = tuple(msgspec.structs.replace(job, kind="quick", cancel_after=None) for job in plan.jobs)
    result = run_plan(msgspec.structs.replace(plan, jobs=jobs, node_faults=(), call_faults=(), every=None))
    assert (result.violations, result.jobs, result.runs) == ((), 10, 10)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_planted_bug_still_has_its_place(bug: PlantedBug) -> None:
    assert (PACKAGE / bug.file).read_text().count(bug.before) == 1
