"""Bills every customer exactly once for every period, although nodes are killed all the time.

    python billing.py          three nodes, one of them killed with kill -9 again and again, for 5 periods
    python billing.py 60       for 60 periods

A period is a second here; in practice it is a month, `@app.cron("0 6 1 * *", tz="Europe/Berlin")`. Each fires once, on any
node. Its run enqueues one job for each customer in the transaction that completes it, and each of these writes its invoice in
the transaction that completes it. No constraint prevents a second invoice, and no handler checks for one. Everything is in
drumbeat.db in this folder, or in PostgreSQL: `export DRUMBEAT_URL=postgresql://... && drumbeat migrate`.
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

CUSTOMERS = range(10)

# Short intervals, because nodes really die here; and their jobs are not to blame for it.
app = Drumbeat(name="billing", version="1", heartbeat=0.2, dead_after=1, poll=0.2, crash_limit=1000)


@app.every(1, grid=True, catch_up="all", overlap="allow", transactional=True, retries=100)
async def bill_everybody() -> None:
    period = int(current_job().scheduled_for.timestamp())
    async with current_job().transaction() as conn:
        for customer in CUSTOMERS:
            await bill.using(conn=conn).enqueue(customer, period)


@app.task(transactional=True, retries=100)
async def bill(customer: int, period: int) -> None:
    await asyncio.sleep(random.uniform(0, 0.1))  # slow work belongs before the transaction
    async with current_job().transaction() as conn:
        await run(conn, "INSERT INTO invoice VALUES ($1, $2)", customer, period)


async def run_scenario(periods: int) -> None:
    async with connection() as conn:
        await run(conn, "DROP TABLE IF EXISTS invoice")
        await run(conn, "CREATE TABLE invoice (customer integer, period integer)")
        nodes, killed = [start_node() for _ in range(3)], 0
        try:
            while await count(conn, "DISTINCT period") < periods:
                billed = await count(conn, "period")
                while await count(conn, "period") == billed:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.sleep(random.uniform(0, 1))
                victim = nodes.pop(random.randrange(3))
                victim.kill()
                victim.wait()
                nodes.append(start_node())
                killed += 1
            await app.schedules.pause("bill_everybody", reason="the example ends")
            while await is_busy():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        finally:
            for node in nodes:
                node.terminate()
                node.wait()
            await app.close()
        await report(conn, killed)


async def report(conn: Any, killed: int) -> None:
    invoices = [tuple(row) for row in await run(conn, "SELECT period, customer FROM invoice")]
    periods = sorted({period for period, _ in invoices})
    wanted = [(period, customer) for period in range(periods[0], periods[-1] + 1) for customer in CUSTOMERS]
    missing, twice = len(set(wanted) - set(invoices)), len(invoices) - len(set(invoices))
    print(f"{killed} nodes killed, {len(periods)} periods, {len(invoices)} invoices: {missing} missing, {twice} twice")


async def is_busy() -> bool:
    return any([await app.jobs.list(state=state, limit=1) for state in ("pending", "running")])


def start_node() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "drumbeat", "run", "billing:app", "--log-level", "error"])


async def count(conn: Any, what: str) -> int:
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


async def run(conn: Any, sql: str, *values: Any) -> Any:
    if isinstance(conn, sqlite3.Connection):
        return conn.execute(sql.replace("$", "?"), values).fetchall()
    return await conn.fetch(sql, *values)


if __name__ == "__main__":
    asyncio.run(run_scenario(periods=int(sys.argv[1]) if len(sys.argv) > 1 else 5))
