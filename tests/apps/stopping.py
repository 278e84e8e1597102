"""A program that is slow to stop: `drumbeat run tests.apps.stopping:app`.

$TEST_START: a start-up call of this kind (async, deaf, thread) that waits for ever; else there is a room whose handler does.
"""

import asyncio
import os
import time

from drumbeat import Drumbeat, abort_signal
from drumbeat.worker import room_consumer
from tests.apps import journal

room_consumer.CANCEL_DELAY = 0.5
app = Drumbeat()
START = os.environ.get("TEST_START")


@app.room
async def linger() -> None:
    journal.write("begun")
    await asyncio.Event().wait()


if START == "async":

    @app.on_start
    async def wait() -> None:
        journal.write("begun")
        await asyncio.Event().wait()


if START == "deaf":

    @app.on_start
    def wait_in_c() -> None:
        journal.write("begun")
        time.sleep(60)


if START == "thread":

    @app.on_start
    def wait_in_thread() -> None:
        journal.write("begun")
        abort_signal().wait()
        journal.write("told", reason=abort_signal().reason)
