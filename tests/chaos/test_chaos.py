"""A short run of chaos on each engine: real processes, a few faults, no promise broken."""

import random
import shutil
from pathlib import Path

import pytest

from tests.chaos.run import ChaosPlan, ChaosRun

MIN_JOBS = 50


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "redis"])
async def test_a_short_run_breaks_no_promise(engine: str, tmp_path: Path) -> None:
    plan = ChaosPlan(
        engine=engine,
        seconds=4,
        seed=random.SystemRandom().randrange(1_000_000),
        faults=6,
        folder=tmp_path,
        lease=2,
        rate=20,
        is_small=True,
    )

    verdict = await ChaosRun(plan).run()

    assert verdict.violations == [], f"seed {plan.seed}, {plan.folder}"
    assert verdict.jobs > MIN_JOBS
    shutil.rmtree(tmp_path)  # pytest would keep what nobody will look at
