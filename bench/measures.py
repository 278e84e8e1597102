"""The measures: each takes a contender and a size, and gives one round's figures by name.

All begin on an empty store in a fresh folder, with producer and worker in processes of their own.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contender import BACKLOG, DRAIN, ENQUEUE, FLOOR, LATENCY, LATENESS, Contender
from bench.processes import Stage, Worker, stage
from bench.producer import WARM_UP_JOBS

Figures = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Size:
    bulk: int
    single: int
    drain: float
    """Part of each contender's own number of jobs."""
    pickups: int
    scheduled: int
    backlog: int
    idle_seconds: float
    patience: float = 120
    """How long a drain may take before it is called failed."""
    seed: int = 0
    """Of the random gaps and delays: the same for all contenders of a round, another in each round."""


FULL = Size(bulk=50_000, single=2_000, drain=1, pickups=200, scheduled=200, backlog=1_000_000, idle_seconds=10)
QUICK = Size(bulk=2_000, single=100, drain=0.05, pickups=20, scheduled=20, backlog=5_000, idle_seconds=1)


def enqueue(contender: Contender, size: Size, parent: Path | None) -> Figures:
    figures: Figures = {}
    with stage(contender, size.bulk, parent) as place:
        seconds = place.produce("bulk", first=0, count=size.bulk)
        if seconds is not None:
            figures["enqueue_bulk"] = size.bulk / seconds
    with stage(contender, size.single, parent) as place:
        figures["enqueue_single"] = size.single / place.produce("single", first=0, count=size.single)
    return figures


def drain(contender: Contender, size: Size, parent: Path | None) -> Figures:
    """All jobs are enqueued before the worker starts; the clock runs from the first handler's start until the library's
    own store holds every job as finished."""
    jobs = max(int(contender.drain_jobs * size.drain), 100)
    with stage(contender, jobs, parent) as place:
        place.produce("fill", count=jobs)
        rate, worker_mb = drained(place, jobs, size)
    return {"drained": rate, "resident_mb": worker_mb}


def drained(place: Stage, jobs: int, size: Size) -> tuple[float, float]:
    watching = place.begin("watch", count=jobs, seconds=size.patience)
    with place.worker() as worker:
        finished = watching.answer()
        worker_mb = worker.resident_mb()
    return jobs / (finished - min(place.ledger.moments(0, jobs))) * 1e9, worker_mb


def latency(contender: Contender, size: Size, parent: Path | None) -> Figures:
    # Uneven gaps, so that no polling interval is met in phase; the same for all.
    dice = random.Random(size.seed)
    gaps = [dice.uniform(0.005, 0.045) for _ in range(size.pickups)]
    with stage(contender, WARM_UP_JOBS + size.pickups, parent) as place, place.worker() as worker:
        called = place.produce("paced", gaps=gaps)
        started = place.ledger.moments(WARM_UP_JOBS, WARM_UP_JOBS + size.pickups)
        waits = [(start - call) / 1e6 for start, call in zip(started, called, strict=True)]
        idle = idle_percent(worker, size.idle_seconds)
    return {"pickup_p50": quantile(waits, 0.5), "pickup_p99": quantile(waits, 0.99), "idle_cpu": idle}


def idle_percent(worker: Worker, seconds: float) -> float:
    time.sleep(min(2.0, seconds))
    before, began = worker.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return 100 * (worker.cpu_seconds() - before) / (time.monotonic() - began)


def lateness(contender: Contender, size: Size, parent: Path | None) -> Figures:
    dice = random.Random(size.seed)
    delays = sorted(dice.uniform(2.0, 2.0 + size.scheduled / 40) for _ in range(size.scheduled))
    with stage(contender, WARM_UP_JOBS + size.scheduled, parent) as place, place.worker():
        due = place.produce("schedule", delays=delays)
        started = place.ledger.moments(WARM_UP_JOBS, WARM_UP_JOBS + size.scheduled)
    late = [(start - moment) / 1e6 for start, moment in zip(started, due, strict=True)]
    return {
        "late_p50": quantile(late, 0.5),
        "late_p99": quantile(late, 0.99),
        "late_max": max(late),
        "early": sum(moment < 0 for moment in late),
    }


def backlog(contender: Contender, size: Size, parent: Path | None) -> Figures:
    """The same drain beside many jobs of a far future, against an empty store in the same minute."""
    alone = drain(contender, size, parent)
    jobs = max(int(contender.drain_jobs * size.drain), 100)
    with stage(contender, jobs, parent) as place:
        place.produce("future", count=size.backlog)
        place.produce("fill", count=jobs)
        rate, worker_mb = drained(place, jobs, size)
    return {
        "backlog_drained": rate,
        "backlog_ratio": rate / alone["drained"],
        "backlog_growth_mb": worker_mb - alone["resident_mb"],
    }


def floor(contender: Contender, size: Size, parent: Path | None) -> Figures:
    jobs = max(int(contender.drain_jobs * size.drain), 1_000)
    with stage(contender, 1, parent) as place:
        inserting, draining = place.produce("floor", count=jobs)
    return {"enqueue_bulk": jobs / inserting, "drained": jobs / draining}


MEASURES: dict[str, Callable[[Contender, Size, Path | None], Figures]] = {
    ENQUEUE: enqueue,
    DRAIN: drain,
    LATENCY: latency,
    LATENESS: lateness,
    BACKLOG: backlog,
    FLOOR: floor,
}


def quantile(values: Sequence[float], part: float) -> float:
    """Nearest rank: always a value that was seen."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]
