"""Drumbeat's program for `bench.schedules`."""

from drumbeat import Drumbeat

app = Drumbeat(name="scheduled")


@app.task
async def tick() -> None: ...
