"""Make a sync call and end, without a word of goodbye."""

from drumbeat import Drumbeat

app = Drumbeat("sqlite:///jobs.db")


@app.task
async def greet(name: str) -> None: ...


print(greet.enqueue_sync("Ada").created)
