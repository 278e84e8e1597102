"""The README's example does what the README says, copied as a reader would copy it."""

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.meta.project import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    shop, caller = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))[:2]
    (tmp_path / "shop.py").write_text(shop, encoding="utf-8")
    (tmp_path / "caller.py").write_text(caller, encoding="utf-8")
    with subprocess.Popen([sys.executable, "shop.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as worker:
        try:
            called = subprocess.run(
                [sys.executable, "caller.py"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
            )
        finally:
            worker.send_signal(signal.SIGTERM)
            _, told = worker.communicate(timeout=30)
    assert called.stdout == "customer 42 paid 9.90\n", called.stderr + told
    assert worker.returncode == 0, told
