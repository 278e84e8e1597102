"""The producer's process: opens one contender's client, does one operation, prints one line of JSON.

python -m bench.producer CONTENDER OPERATION '{"argument": ...}'
"""

import json
import sys
import time
from typing import Any

from bench.contender import Producer, until
from bench.contenders import CONTENDERS
from bench.ledger import Ledger

WARM_UP_JOBS = 10


def bulk(producer: Producer, *, first: int, count: int) -> float | None:
    return producer.bulk(first, count) if producer.bulk_chunk else None


def single(producer: Producer, *, first: int, count: int) -> float:
    return producer.single(first, count)


def fill(producer: Producer, *, count: int) -> float:
    """Enqueue by whatever is fastest; nobody times this."""
    return producer.bulk(0, count) if producer.bulk_chunk else producer.single(0, count)


def future(producer: Producer, *, count: int) -> float:
    return producer.future(count, delay=7 * 86_400)


def watch(producer: Producer, *, count: int, seconds: float) -> int:
    """Wait until all have started and the library's own store holds them as finished; that monotonic moment."""
    Ledger.from_environment().wait(count, seconds=seconds)
    until(lambda: producer.unfinished() == 0, seconds=seconds, poll=0.005, what="started, but never finished")
    return time.monotonic_ns()


def warm_up(producer: Producer) -> None:
    producer.single(0, WARM_UP_JOBS)
    Ledger.from_environment().wait(WARM_UP_JOBS, seconds=30)


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


def floor(producer: Producer, *, count: int) -> tuple[float, float]:
    """The seconds of a bare loop that inserts, and of one that claims and finishes."""
    from bench.apps.place import folder
    from bench.floor import measure

    return measure(folder() / "floor.db", count)


OPERATIONS = {function.__name__: function for function in (bulk, single, fill, future, watch, paced, schedule, floor)}


def main(name: str, operation: str, arguments: dict[str, Any]) -> None:
    producer = CONTENDERS[name].open_producer()
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        answer = OPERATIONS[operation](producer, **arguments)
    finally:
        producer.close()
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
