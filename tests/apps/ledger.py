"""A program that writes numbers into the database that holds its jobs: each in the transaction that ends its job."""

import os
import time
from pathlib import Path

import psycopg

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from tests.apps import journal

app = Drumbeat()
PID = os.getpid()

INSERT = "INSERT INTO note VALUES (%s)"


@app.task(pool="process", retries=0)
def in_process(number: int) -> None:
    with current_job().transaction() as conn:
        conn.execute(INSERT, (number,))
        current_job().complete_sync(conn=conn, result=number)


@app.task(pool="process", retries=0)
def in_process_by_hand(number: int) -> None:
    with psycopg.connect(app.settings.url) as conn:
        conn.execute(INSERT, (number,))
        current_job().complete_sync(conn=conn, result=number)


@app.task(pool="process", retries=0)
def dies_after_commit(number: int) -> None:
    with current_job().transaction() as conn:
        conn.execute(INSERT, (number,))
    os._exit(9)


@app.task(retries=0)
async def on_loop(number: int) -> str:
    async with current_job().transaction() as conn:
        await conn.execute("INSERT INTO note VALUES ($1)", number)
        await current_job().complete(conn=conn, result=str(os.getpid()))
    return ""


@app.task(retries=0)
def freezes(number: int, gate: str, inside: bool) -> None:
    """In a thread: the first run waits for the file, before its transaction or inside it; later ones do not wait."""
    is_first = not journal.read(Path(os.environ[journal.FILE]), "started")
    try:
        if is_first and not inside:
            _wait(gate)
        with current_job().transaction() as conn:
            conn.execute(f"INSERT INTO note VALUES ({number:d})")
            if is_first and inside:
                _wait(gate)
        journal.write("committed")
    except BaseException as error:
        journal.write("refused", error=repr(error))
        raise


def _wait(gate: str) -> None:
    journal.write("started")
    while not Path(gate).exists():
        time.sleep(0.01)
