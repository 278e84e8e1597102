"""A short run of chaos on each engine: real processes, a few faults, no promise broken.

`make chaos` runs as long as one likes, with more processes, and judges recovery times as well.
"""

import random
import shutil
from pathlib import Path

import pytest

from tests.chaos.run import ChaosPlan, ChaosRun


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "redis"])
async def test_a_short_run_breaks_no_promise(engine: str, tmp_path: Path) -> None:
    plan = ChaosPlan(
        engine=engine,
        seconds=5,
        seed=random.SystemRandom().randrange(1_000_000),
        faults=6,
        folder=tmp_path,
        lease=3,
        rate=20,
        is_small=True,
        min_jobs=60,
        is_timed=False,
    )

    verdict = await ChaosRun(plan).run()

    assert verdict.violations == [], f"seed {plan.seed}, {plan.folder}"
    assert verdict.jobs >= plan.min_jobs // 2  # unique jobs are acknowledged without being added
    shutil.rmtree(tmp_path)  # pytest would keep what nobody will look at
