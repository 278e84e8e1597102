"""A program whose handlers take results of other jobs in child processes."""

import os

from drumbeat import JobOutcome, Results
from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.errors import WorkflowCancelled

app = Drumbeat()


@app.task
async def double(number: int) -> int:
    return 2 * number


@app.task
async def fail() -> int:
    raise ValueError("no")


@app.task(pool="process")
def where(number: int) -> tuple[int, int]:
    return number, os.getpid()


@app.task(pool="process")
def total(parts: Results[int]) -> tuple[int, int, int]:
    return len(parts), sum(parts), os.getpid()


@app.task(pool="process")
def first_of(parts: list[int]) -> int:
    return parts[0]


@app.task(pool="process")
def judge(outcome: JobOutcome[int]) -> str:
    return f"{outcome.state} {outcome.error.message if outcome.error else outcome.value}"


@app.task(pool="process", retries=3, backoff=[0.01])
def add(count: int) -> list[str]:
    handles = current_job().add_sync("more", [double.bind(number) for number in range(count)])
    if current_job().attempt == 1:
        raise ValueError("again")
    return [handle.id for handle in handles]


@app.task(pool="process", retries=0)
def add_late() -> str:
    """Its workflow is cancelled before it runs, and only its record says so."""
    try:
        current_job().add_sync("more", [double.bind(1)])
    except WorkflowCancelled as error:
        return f"refused: {error.workflow}"
    return "added"
