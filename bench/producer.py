"""The producer's process: opens one contender's client, does one operation, prints one line of JSON.

python -m bench.producer ENGINE CONTENDER OPERATION '{"argument": ...}'
"""

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.contender import STAMP, Producer, wait_until
from bench.contenders import CONTENDERS
from bench.crowd import Crowd
from bench.ledger import ENVIRONMENT_NAME, Ledger

WARM_UP_JOBS = 10


def bulk(producer: Producer, *, first: int, count: int) -> tuple[float, float] | None:
    """Seconds of the calls, and of this process' CPU meanwhile."""
    if not producer.bulk_chunk:
        return None
    before = time.process_time()
    return producer.bulk(first, count), time.process_time() - before


def single(producer: Producer, *, first: int, count: int) -> float:
    return producer.single(first, count)


def keyed(producer: Producer, *, first: int, count: int) -> float:
    return producer.keyed(first, count)


def fill(producer: Producer, *, count: int, task: str = STAMP) -> None:
    producer.fill(count, task)


def future(producer: Producer, *, count: int) -> None:
    producer.fill_at(0, count, time.time_ns() + 7 * 86_400 * 10**9)


def watch(producer: Producer, *, count: int, seconds: float) -> int:
    """Wait until all have started and the library's own store holds them as finished; that monotonic time."""
    Ledger.from_environment().wait(count, seconds=seconds)
    wait_until(lambda: producer.unfinished() == 0, seconds=seconds, poll=0.005, what="started, but never finished")
    return time.monotonic_ns()


def warm_up(producer: Producer) -> None:
    producer.single(0, WARM_UP_JOBS)
    Ledger.from_environment().wait(WARM_UP_JOBS, seconds=30)


def wake(producer: Producer) -> None:
    """See a worker take jobs: from here on it is up, and idle."""
    warm_up(producer)


def paced(producer: Producer, *, gaps: list[float]) -> list[int]:
    warm_up(producer)
    called = producer.paced(WARM_UP_JOBS, gaps)
    Ledger.from_environment().wait(WARM_UP_JOBS + len(gaps), seconds=30)
    return called


def schedule(producer: Producer, *, delays: list[float]) -> list[int]:
    warm_up(producer)
    due = producer.schedule(WARM_UP_JOBS, delays)
    Ledger.from_environment().wait(WARM_UP_JOBS + len(delays), seconds=max(delays) + 30)
    return due


def burst(producer: Producer, *, count: int, lead: float, other_after: float, other: bool) -> dict[str, int | None]:
    """Enqueue all for one due time, and one more of another queue while they run; monotonic times.

    The due time is a whole second, because one library supports no others.
    """
    warm_up(producer)
    due = (time.time_ns() // 10**9 + 1 + math.ceil(lead)) * 10**9
    producer.fill_at(WARM_UP_JOBS, count, due)
    left = (due - time.time_ns()) / 1e9
    if left < 0.5:
        raise TimeoutError(f"{count} jobs could not be enqueued in {lead:.0f} s, before they were due")
    due_by_monotonic = due - time.time_ns() + time.monotonic_ns()
    called = None
    if other:
        time.sleep(left + other_after)
        called = time.monotonic_ns()
        producer.other(WARM_UP_JOBS + count)
    finished = watch(producer, count=WARM_UP_JOBS + count + other, seconds=120)
    return {"due": due_by_monotonic, "called": called, "finished": finished}


def crowd(producer: Producer, *, count: int, processes: int, seconds: float) -> tuple[int, int]:
    """Let all begin when each process has had a job; the times of that and of the end."""
    ledger = Crowd(Path(os.environ[ENVIRONMENT_NAME]), processes=processes, jobs=count)
    wait_until(
        lambda: ledger.count_arrived() == processes,
        seconds=60,
        poll=0.005,
        what=f"not each of {processes} processes had a job within 60 s",
    )
    began = time.monotonic_ns()
    ledger.open_gate()
    ledger.wait(count, seconds=seconds)
    wait_until(lambda: producer.unfinished() == 0, seconds=seconds, poll=0.005, what="started, but never finished")
    return began, time.monotonic_ns()


def floor(producer: Producer, *, count: int, snapshot: bool = False) -> tuple[float, float]:
    return producer.floor(count, snapshot=snapshot)


OPERATIONS = {
    function.__name__: function
    for function in (bulk, single, keyed, fill, future, watch, wake, paced, schedule, burst, crowd, floor)
}


def main(engine: str, name: str, operation: str, arguments: dict[str, Any]) -> None:
    producer = CONTENDERS[engine][name].open_producer()
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        answer = OPERATIONS[operation](producer, **arguments)
    finally:
        producer.close()
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], json.loads(sys.argv[4]))
