"""Import Drumbeat, make an app and register everything: prints what of it touched the world outside."""

import os
import sys

READ: list[str] = []


class Watched(dict):  # type: ignore[type-arg]
    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        READ.append(key)
        return super().__getitem__(key)

    def get(self, key, default=None):  # type: ignore[no-untyped-def]
        READ.append(key)
        return super().get(key, default)


os.environ = Watched(os.environ)  # type: ignore[assignment]  # noqa: B003

import drumbeat  # noqa: E402

TOUCHED = [key for key in READ if key.startswith("DRUMBEAT")]
READ.clear()
OUTSIDE = ("open", "os.", "sqlite3.", "socket.", "subprocess.", "shutil.", "fcntl.")
sys.addaudithook(lambda event, args: TOUCHED.append(event) if event.startswith(OUTSIDE) else None)

app = drumbeat.Drumbeat(name="shop", imports=["shop.tasks"], concurrency=3, queues="critical=6")


@app.task(queue="critical", retries=5, backoff=drumbeat.Backoff(base=1, cap=30), timeout=30)
async def charge(customer: int) -> str:
    return ""


@app.task(batch=10)
def publish(calls: list[drumbeat.Call[int]]) -> None: ...


@charge.on_dead
async def refund(job: drumbeat.Job, error: drumbeat.JobError) -> None: ...


@app.on_event(drumbeat.AttemptFailed)
def tell(event: drumbeat.AttemptFailed) -> None: ...


@app.lifespan
async def resources():  # type: ignore[no-untyped-def]
    yield


later = charge.using(delay=60, key="a", unique=True)
app.sync  # noqa: B018
found = TOUCHED + READ
print(found)
