"""Drumbeat's program with a plain function, which runs in the worker's threads."""

from bench.apps.folder import ledger
from drumbeat import Drumbeat

app = Drumbeat()


@app.task
def stamp(number: int) -> None:
    ledger.stamp(number)
