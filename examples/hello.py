"""The smallest program: one task.

    drumbeat run hello:app         in one terminal, from this folder: a worker, until Ctrl-C
    python hello.py                in another: enqueue a job, wait for its result

The jobs are in drumbeat.db in this folder, or in the store of DRUMBEAT_URL.
"""

from drumbeat import Drumbeat

app = Drumbeat()


@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


if __name__ == "__main__":
    job = greet.enqueue_sync("world")
    print(job.result(timeout=30))
