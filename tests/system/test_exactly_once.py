"""The example with the invoices: workers are killed at random moments, and each order has one invoice.

6 kills; 200 with DRUMBEAT_FULL=1.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from drumbeat.core.job import JobState
from drumbeat.core.job_query import JobFilter
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.urls import open_store
from tests.callers import caller
from tests.cli.command import build_environment
from tests.system.conftest import Place

EXAMPLE = Path(__file__).parents[2] / "examples" / "billing_exactly_once.py"
KILLS = 200 if os.environ.get("DRUMBEAT_FULL") else 6


async def test_each_order_has_one_invoice_though_workers_are_killed(place: Place, tmp_path: Path) -> None:
    url, environ = place
    shutil.copy(EXAMPLE, tmp_path)
    done = subprocess.run(
        [sys.executable, EXAMPLE.name, str(KILLS)],
        cwd=tmp_path,
        env=build_environment(**environ),
        capture_output=True,
        text=True,
        timeout=KILLS * 10,
        check=False,
    )
    orders = KILLS * 20
    assert done.stdout == f"{KILLS} workers killed, {orders} orders, {orders} billed, {orders} invoices\n", done.stderr
    async with caller(url) as program, await open_store(url) as store:
        billed = Counter(await program.column("SELECT customer_order FROM invoice"))
        jobs = await find_jobs(store, JobFilter(limit=2 * orders))
    assert billed == Counter(range(1, orders + 1))
    assert Counter(job.state for job in jobs) == {JobState.SUCCEEDED: orders}
    # The kills have hit: jobs were under way in those who died, and ran again.
    assert sum(job.crashes > 0 for job in jobs) > KILLS
