import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers import folders
from tests.waiting import until_sync

LEAVE_A_SERVER = """
import subprocess, sys
from tests.servers import folders
folder = folders.make("redis")
nowhere = subprocess.DEVNULL
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], cwd=folder, stdout=nowhere, stderr=nowhere)
print(folder, server.pid)
"""


def test_what_a_process_left_is_ended_and_removed_and_that_of_a_living_one_is_not() -> None:
    mine = folders.make("redis")
    left = subprocess.run([sys.executable, "-c", LEAVE_A_SERVER], capture_output=True, text=True, check=True).stdout
    folder, pid = Path(left.split()[0]), int(left.split()[1])
    assert folder.exists() and folder.parent == Path(tempfile.gettempdir())
    folders.sweep()
    assert mine.exists() and not folder.exists()
    until_sync(lambda: not Path(f"/proc/{pid}/cwd").exists(), what="the end of what it had started")
    os.rmdir(mine)
