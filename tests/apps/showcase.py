"""A program that has a little of everything, so that pages of the dashboard have something to show.

    python -m tests.apps.showcase sqlite:////tmp/showcase.db 7801

It fills the store (queues, priorities, keys, failures, dead letters, a paused queue, jobs that nobody can run), then works and
serves the dashboard until it is stopped. Not a benchmark, and no test by itself.
"""

import asyncio
import logging
import random
import sys
from datetime import timedelta

from drumbeat import Drumbeat, current_job

app = Drumbeat(concurrency=8, name="bookshop")
HOSTILE = "<img src=x onerror=alert(1)>"


class CardDeclined(Exception):
    """The bank said no."""


class UpstreamError(Exception):
    """Somebody else's server."""


@app.task(queue="critical", retries=5)
async def charge_card(order: int, cents: int) -> str:
    await asyncio.sleep(random.uniform(0.02, 0.2))
    if order % 9 == 0:
        raise CardDeclined(f"order {order}: insufficient funds")
    return f"charged {cents} cents"


@app.task(retries=2)
async def send_email(to: str, subject: str, token: str = "t0p-secret") -> None:
    await asyncio.sleep(random.uniform(0.005, 0.05))
    if "bounce" in to:
        raise UpstreamError(f"550 5.1.1 <{to}>: mailbox unavailable")


@app.task(queue="low", timeout=timedelta(minutes=10))
async def build_report(month: str, rows: int = 9_007_199_254_740_993) -> dict[str, int]:
    for done in range(60):
        current_job().progress({"done": done, "of": 60})
        await asyncio.sleep(0.5)
    return {"rows": rows, "pages": 12}


@app.task(queue="low")
async def resize_image(path: str, width: int) -> None:
    await asyncio.sleep(random.uniform(0.1, 0.9))
    if path.endswith("7.tiff"):
        raise ValueError(f"cannot identify image file {path!r}")


@app.task(retries=3)
async def sync_inventory(warehouse: str) -> int:
    await asyncio.sleep(random.uniform(0.05, 0.3))
    if current_job().attempt < 3:
        raise UpstreamError(f"{warehouse}: 503 Service Unavailable {HOSTILE}")
    return 4_211


@app.task(queue="partners")
async def notify_partner(partner: str) -> None:
    await asyncio.sleep(0.1)


@app.task(queue="exports", retries=0)
async def export_ledger(year: int) -> None:
    async with app.lock("ledger", timeout=60):
        await asyncio.sleep(6)
    if year % 2:
        raise PermissionError(f"/srv/ledger/{year}.csv: read-only file system")


@app.every("10s")
async def beat() -> None:
    await asyncio.sleep(random.uniform(0.05, 0.4))


@app.cron("*/2 * * * *")
async def reindex() -> None:
    await asyncio.sleep(1.5)
    if random.random() < 0.25:
        raise UpstreamError("search cluster is yellow")


@app.cron("0 3 * * *", tz="Europe/Berlin")
async def nightly_invoices() -> None:
    await asyncio.sleep(1)


@app.every("1h")
async def rotate_keys() -> None:
    await asyncio.sleep(0.2)


async def fill() -> None:
    """What is there from the beginning."""
    for order in range(40):
        await charge_card.using(key=f"order-{order}", unique=True).enqueue(order, 1_000 + order * 37)
    await app.enqueue_many([send_email.bind(f"ada{n}@example.org", "Your order is on its way") for n in range(300)])
    for n in range(25):
        await send_email.using(retries=0).enqueue(f"bounce{n}@example.com", "Your order is on its way")
    for n in range(30):
        await resize_image.using(retries=0 if n % 3 else 1).enqueue(f"covers/{n}.tiff", 640)
    for month in ("2026-09", "2026-10", "2026-11"):
        await build_report.enqueue(month)
    for warehouse in ("Leipzig", "Graz", "Basel", HOSTILE):
        await sync_inventory.enqueue(warehouse)
    for year in range(2020, 2026):
        await export_ledger.enqueue(year)
    for n in range(12):
        await notify_partner.enqueue(f"partner {n}")
        await send_email.using(delay=timedelta(minutes=7 * n + 3)).enqueue(f"later{n}@example.org", "How was it?")
    await app.queues.pause("partners", why="their API is down until Monday", by="grace")


async def trickle() -> None:
    """What keeps coming."""
    order = 100
    while True:
        for _ in range(random.randint(1, 30)):
            await send_email.enqueue(f"reader{random.randint(1, 999)}@example.org", "New books this week")
        order += 1
        await charge_card.enqueue(order, random.randint(500, 9_000))
        if random.random() < 0.3:
            await sync_inventory.enqueue(random.choice(["Leipzig", "Graz", "Basel"]))
        if random.random() < 0.1:
            await resize_image.enqueue(f"covers/{random.randint(1, 99)}.tiff", 320)
        await asyncio.sleep(random.uniform(0.2, 1.5))


async def main(url: str, port: int) -> None:
    import uvicorn

    logging.basicConfig(level=logging.ERROR)
    app.configure({"url": url, "name": "bookshop"})
    server = uvicorn.Server(uvicorn.Config(app.dashboard(), host="127.0.0.1", port=port, log_level="warning"))
    await fill()
    async with asyncio.TaskGroup() as group:
        serving = [group.create_task(app.serve(), name="worker"), group.create_task(trickle(), name="trickle")]
        await server.serve()
        for task in serving:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
