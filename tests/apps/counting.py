"""A program whose only task does nothing: `drumbeat run tests.apps.counting:app`."""

from drumbeat.app import Drumbeat

app = Drumbeat()


@app.task
async def noop(number: int) -> None:
    pass
