"""A program whose import takes until $TEST_GATE is there: `drumbeat run tests.apps.slow_import:app --processes 2`."""

import os
import time
from pathlib import Path

from drumbeat.app import Drumbeat
from tests.apps import journal

app = Drumbeat()
journal.write("importing")
while not Path(os.environ["TEST_GATE"]).exists():
    time.sleep(0.01)
