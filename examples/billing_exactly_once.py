"""Exactly one invoice for each order, however often workers are killed.

    python billing_exactly_once.py          orders come in, workers are killed with kill -9 at random times, 5 of them
    python billing_exactly_once.py 200      200 of them

An order and the job that bills it are stored in one transaction, and so are the invoice and the completion of that job. No
constraint prevents a second invoice, and no handler checks for one. The jobs, orders and invoices are in drumbeat.db in this
folder, or in PostgreSQL: `export DRUMBEAT_URL=postgresql://... && drumbeat migrate`.
"""

import asyncio
import contextlib
import random
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

from drumbeat import Drumbeat, current_job

# Short intervals, because workers really die here; and their jobs are not to blame for it.
app = Drumbeat(name="billing", heartbeat=0.2, dead_after=1, poll=0.2, crash_limit=1000)


@app.task(transactional=True, retries=100)
async def bill(order: int, cents: int) -> None:
    await asyncio.sleep(random.uniform(0, 0.2))  # slow work belongs before the transaction
    async with current_job().transaction() as conn:
        await run(conn, "INSERT INTO invoice VALUES ($1, $2)", order, cents)
        await asyncio.sleep(random.uniform(0, 0.01))  # time to be killed in


async def take_order(conn: Any, order: int, cents: int) -> None:
    async with transaction(conn):
        await run(conn, "INSERT INTO customer_order VALUES ($1)", order)
        await bill.using(conn=conn).enqueue(order, cents)


async def run_scenario(kills: int) -> None:
    async with connection() as conn:
        for table in ("customer_order (number integer)", "invoice (customer_order integer, cents integer)"):
            await run(conn, f"DROP TABLE IF EXISTS {table.split()[0]}")
            await run(conn, f"CREATE TABLE {table}")
        workers, orders = [start_worker(), start_worker()], 0
        try:
            for _ in range(kills):
                while not await are_up(workers):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                for _ in range(20):
                    orders += 1
                    await take_order(conn, orders, cents=100)
                billed = await count(conn)
                while await count(conn) == billed:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.sleep(random.uniform(0, 0.1))
                victim = workers.pop(random.randrange(2))
                victim.kill()
                victim.wait()
                workers.append(start_worker())
            while await count(conn, "DISTINCT customer_order") < orders:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
        invoices, billed = await count(conn), await count(conn, "DISTINCT customer_order")
        print(f"{kills} workers killed, {orders} orders, {billed} billed, {invoices} invoices")


def start_worker() -> "subprocess.Popen[bytes]":
    program = [sys.executable, "-m", "drumbeat", "run", "billing_exactly_once:app", "--log-level", "error"]
    return subprocess.Popen(program)


async def are_up(workers: "list[subprocess.Popen[bytes]]") -> bool:
    """Whether all workers run: only then does killing one test anything."""
    return {worker.pid for worker in workers} <= {instance.pid for instance in await app.instances.list()}


async def count(conn: Any, what: str = "customer_order") -> int:
    [(number,)] = await run(conn, f"SELECT count({what}) FROM invoice")
    return int(number)


# The rest is the same for SQLite and PostgreSQL, so that this example runs on both.


@contextlib.asynccontextmanager
async def connection() -> AsyncIterator[Any]:
    if app.settings.url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(app.settings.url.removeprefix("sqlite:///"), timeout=30)) as conn:
            yield conn
    else:
        import asyncpg

        conn = await asyncpg.connect(app.settings.url)
        try:
            yield conn
        finally:
            await conn.close()


@contextlib.asynccontextmanager
async def transaction(conn: Any) -> AsyncIterator[None]:
    if isinstance(conn, sqlite3.Connection):
        with conn:
            yield
    else:
        async with conn.transaction():
            yield


async def run(conn: Any, sql: str, *values: Any) -> Any:
    if isinstance(conn, sqlite3.Connection):
        return conn.execute(sql.replace("$", "?"), values).fetchall()
    return await conn.fetch(sql, *values)


if __name__ == "__main__":
    asyncio.run(run_scenario(kills=int(sys.argv[1]) if len(sys.argv) > 1 else 5))
