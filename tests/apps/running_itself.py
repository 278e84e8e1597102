"""A program that runs its own worker by `app.run()`: a job fails, then it ends. With `own` it configures logging."""

import logging
import os
import signal
import sys

from drumbeat import Drumbeat
from drumbeat.events import AttemptFailed

app = Drumbeat("sqlite:///itself.db")


@app.task(retries=0)
async def fail() -> None:
    raise ValueError("no luck")


@app.on_event(AttemptFailed)
def leave(_event: AttemptFailed) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    if "own" in sys.argv:
        logging.basicConfig(format="mine: %(message)s", level=logging.WARNING)
    fail.enqueue_sync()
    app.run()
