"""Orders of a shop: retries, keys, unique jobs, a dead letter and its handler, progress, and batches.

    python orders.py

The worker runs beside the program, on the same event loop; `drumbeat run orders:app` would do as well. The jobs are in
drumbeat.db in this folder, or wherever DRUMBEAT_URL says: look at them with `drumbeat jobs` and `drumbeat dead`.
"""

import asyncio
import logging
from decimal import Decimal

from drumbeat import Backoff, Call, Drumbeat, Job, JobError, SkipRetry, current_job

app = Drumbeat(name="orders")
refunded = asyncio.Event()


@app.task(queue="critical", retries=4, backoff=Backoff(base=0.1, cap=1), timeout=10)
async def charge(order: int, amount: Decimal, card: str) -> str:
    """A slow bank is retried; a stolen card is not."""
    if card == "stolen":
        raise SkipRetry("the card was reported stolen")
    if current_job().attempt < 3:
        raise ConnectionError("the bank did not answer")
    return f"order {order}: {amount} charged at attempt {current_job().attempt}"


@charge.on_dead
async def cancel_order(job: Job, error: JobError) -> None:
    """A separate job, enqueued in the transaction that makes the other one dead: it is never lost."""
    print(f"{job.task} {job.args} is a dead letter: {error.message}")
    refunded.set()


@app.task
async def ship(order: int) -> None:
    for step in ("packed", "labelled", "handed over"):
        current_job().progress(step)
        await asyncio.sleep(0.5)


@app.task
async def remind(order: int) -> None:
    """Reminds of a missing payment; cancelled when the payment arrives."""


@app.task(batch=100)
async def record(calls: list[Call[str]]) -> None:
    """Many calls in one write, which databases and brokers do faster."""
    print(f"recorded {len(calls)} lines at once")


async def story() -> None:
    await remind.using(delay="1d", key="order:1").enqueue(1)
    paid = await charge.enqueue(1, Decimal("9.90"), card="good")
    print(await paid.result(timeout=30))
    print("reminders cancelled:", (await app.cancel(task=remind, key="order:1")).cancelled)

    first = await ship.using(delay=0.2, key="order:1", unique=True).enqueue(1)
    second = await ship.using(key="order:1", unique=True).enqueue(1)
    print("shipped once:", first.id == second.id, second.created)
    while (progress := (await first.job()).progress) is None:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    print("progress:", progress)
    await first.result(timeout=30)

    stolen = await charge.using(key="order:2").enqueue(2, Decimal(5), card="stolen")
    try:
        await stolen.result(timeout=30)
    except JobError as error:
        print("order 2:", error.message)
    async with asyncio.timeout(30):
        await refunded.wait()
    print("discarded:", await app.dead.discard(key="order:2"))

    lines = await app.enqueue_many(record.bind(f"line {number}") for number in range(250))
    for line in lines:
        await line.result(timeout=30)


async def main() -> None:
    async with app, asyncio.TaskGroup() as group:
        worker = group.create_task(app.serve(), name="worker")
        await story()
        worker.cancel()  # drains: running jobs end


if __name__ == "__main__":
    logging.getLogger("drumbeat").setLevel(logging.CRITICAL)  # this program prints its own output
    asyncio.run(main())
