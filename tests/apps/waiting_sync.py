"""Wait for a result that never comes, until Ctrl-C."""

from drumbeat import Drumbeat

app = Drumbeat("sqlite:///jobs.db")


@app.task
async def greet(name: str) -> None: ...


job = greet.enqueue_sync("Ada")
try:
    print("waiting", flush=True)
    job.result()
except KeyboardInterrupt:
    print("interrupted, and the next call works:", job.job().state)
