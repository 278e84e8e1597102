"""The example with the periods: three nodes, one killed again and again; every customer has one invoice for every period.

5 periods; 60 with DRUMBEAT_FULL=1.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.callers import caller
from tests.cli.command import build_environment
from tests.system.conftest import Place

EXAMPLE = Path(__file__).parents[2] / "examples" / "billing.py"
PERIODS = 60 if os.environ.get("DRUMBEAT_FULL") else 5


async def test_every_customer_is_billed_once_for_every_period(place: Place, tmp_path: Path) -> None:
    url, environ = place
    shutil.copy(EXAMPLE, tmp_path)
    done = subprocess.run(
        [sys.executable, EXAMPLE.name, str(PERIODS)],
        cwd=tmp_path,
        env=build_environment(**environ),
        capture_output=True,
        text=True,
        timeout=60 + PERIODS * 15,
        check=False,
    )
    told = re.fullmatch(r"(\d+) nodes killed, (\d+) periods, (\d+) invoices: 0 missing, 0 twice\n", done.stdout)
    assert told is not None, done.stdout + done.stderr
    killed, periods, invoices = map(int, told.groups())
    assert killed > 0 and periods >= PERIODS
    async with caller(url) as program:
        billed = Counter(await program.column("SELECT CAST(period AS bigint) * 100 + customer FROM invoice"))
    first = min(billed) // 100
    wanted = {period * 100 + customer for period in range(first, first + periods) for customer in range(10)}
    assert billed == Counter(wanted)
    assert len(wanted) == invoices
