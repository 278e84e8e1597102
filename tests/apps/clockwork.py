"""A program of many schedules whose handler does nothing: `drumbeat run tests.apps.clockwork:app`.

$TEST_SCHEDULES is how many there are, $TEST_EVERY how many seconds lie between two of their moments.
"""

import os

from drumbeat.app import Drumbeat

app = Drumbeat(name="clockwork")


@app.task(retries=0)
async def tick() -> None:
    pass


for number in range(int(os.environ.get("TEST_SCHEDULES", "1"))):
    app.every(
        float(os.environ.get("TEST_EVERY", "1")),
        grid=True,
        name=f"s{number:02}",
        catch_up="all",
        catch_up_limit=1_000,
        overlap="allow",
    )(tick)
