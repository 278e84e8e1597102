"""A program that writes invoices into the database that holds its jobs: each in the transaction that ends its job.

How often a handler was begun is in the table `begun`, written outside that transaction.
"""

import contextlib
import os
import sqlite3
import time

from drumbeat.app import Drumbeat
from drumbeat.context import current_job

app = Drumbeat()


def connection() -> sqlite3.Connection:
    conn = sqlite3.connect(app.settings.url.removeprefix("sqlite:///"), timeout=30)
    conn.execute("CREATE TABLE IF NOT EXISTS invoice (number INTEGER, pid INTEGER)")
    return conn


def invoices() -> list[tuple[int, int]]:
    with contextlib.closing(connection()) as conn:
        return conn.execute("SELECT number, pid FROM invoice ORDER BY number").fetchall()


@app.task(pool="process", retries=0)
def in_process(number: int) -> None:
    with contextlib.closing(connection()) as conn:
        conn.execute("INSERT INTO invoice VALUES (?, ?)", (number, os.getpid()))
        current_job().complete_sync(conn=conn, result=f"invoice {number}")
        conn.commit()


@app.task(pool="process", retries=0)
def in_process_own(number: int) -> None:
    with current_job().transaction() as conn:
        conn.execute("INSERT INTO invoice VALUES (?, ?)", (number, os.getpid()))


@app.task(pool="process", retries=0)
def dies_after_commit(number: int) -> None:
    with current_job().transaction() as conn:
        conn.execute("INSERT INTO invoice VALUES (?, ?)", (number, os.getpid()))
    os._exit(9)


@app.task(pool="process", retries=0)
def dies_before_commit(number: int) -> None:
    with current_job().transaction() as conn:
        conn.execute("INSERT INTO invoice VALUES (?, ?)", (number, os.getpid()))
        os._exit(9)


@app.task(pool="process", retries=0, timeout=0.5)
def lingers_after_commit(number: int) -> None:
    with current_job().transaction() as conn:
        conn.execute("INSERT INTO invoice VALUES (?, ?)", (number, os.getpid()))
    time.sleep(60)


@app.task(retries=0)
async def on_loop(number: int) -> None:
    async with current_job().transaction() as conn:
        conn.execute("INSERT INTO invoice VALUES (?, ?)", (number, os.getpid()))
