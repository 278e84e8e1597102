"""The measures of a library in use: each takes a contender, a size and a site, and gives one round's figures by name.

All begin on an empty store, with producer and worker in processes of their own. Those of load are in bench/stress.py.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.contender import Contender
from bench.processes import MeasureSetup, Worker, measure_setup
from bench.producer import WARM_UP_JOBS
from bench.sites import Site

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
    """Jobs of a far future."""
    idle_seconds: float
    burst: float = 0
    """Part of each contender's drain that is due at the same time."""
    snapshot: float = 0
    """Part of each contender's drain that runs beside an open snapshot."""
    contended: int = 0
    """Jobs for each worker process where several run."""
    crowds: tuple[int, ...] = ()
    """How many worker processes run side by side."""
    patience: float = 120
    """How long a drain may take before it is called failed."""
    seed: int = 0
    """Of the random gaps and delays: the same for all contenders of a round, another in each round."""


def enqueue(contender: Contender, size: Size, site: Site) -> Figures:
    figures: Figures = {}
    with measure_setup(contender, size.bulk, site) as place:
        taken = place.produce("bulk", first=0, count=size.bulk)
        if taken is not None:
            seconds, cpu = taken
            figures |= {"enqueue_bulk": size.bulk / seconds, "enqueue_cpu_us": cpu / size.bulk * 1e6}
    with measure_setup(contender, size.single, site) as place:
        figures["enqueue_single"] = size.single / place.produce("single", first=0, count=size.single)
    return figures


def keys(contender: Contender, size: Size, site: Site) -> Figures:
    with measure_setup(contender, size.bulk, site) as place:
        return {"enqueue_keys": size.bulk / place.produce("keyed", first=0, count=size.bulk)}


def drain(contender: Contender, size: Size, site: Site) -> Figures:
    """All jobs are enqueued before the worker starts; the clock runs from the first handler's start until the library's
    own store holds every job as finished."""
    jobs = drain_jobs(contender, size)
    with measure_setup(contender, jobs, site) as place:
        place.produce("fill", count=jobs)
        before = site.server_cpu(place.environment)
        seen = measure_drain(place, jobs, size)
        figures = {"drained": seen.rate, "resident_mb": seen.worker_mb, "drain_cpu_us": seen.worker_cpu / jobs * 1e6}
        if before is not None:
            figures["drain_server_cpu_us"] = (site.server_cpu(place.environment) - before) / jobs * 1e6
    return figures


@dataclass(frozen=True, kw_only=True)
class DrainFigures:
    rate: float
    worker_mb: float
    worker_cpu: float
    """Seconds, from the start of the process on: its imports are in it."""


def drain_jobs(contender: Contender, size: Size) -> int:
    return max(int(contender.drain_jobs * size.drain), 100)


def measure_drain(place: MeasureSetup, jobs: int, size: Size) -> DrainFigures:
    watching = place.begin("watch", count=jobs, seconds=size.patience)
    with place.worker() as worker:
        finished = watching.answer()
        worker_mb, worker_cpu = worker.resident_mb(), worker.cpu_seconds()
    rate = jobs / (finished - min(place.ledger.timestamps(0, jobs))) * 1e9
    return DrainFigures(rate=rate, worker_mb=worker_mb, worker_cpu=worker_cpu)


def latency(contender: Contender, size: Size, site: Site) -> Figures:
    # Uneven gaps, so that no polling interval is met in phase; the same for all.
    dice = random.Random(size.seed)
    gaps = [dice.uniform(0.005, 0.045) for _ in range(size.pickups)]
    with measure_setup(contender, WARM_UP_JOBS + size.pickups, site) as place, place.worker():
        called = place.produce("paced", gaps=gaps)
        started = place.ledger.timestamps(WARM_UP_JOBS, WARM_UP_JOBS + size.pickups)
        waits = [(start - call) / 1e6 for start, call in zip(started, called, strict=True)]
    return {"pickup_p50": quantile(waits, 0.5), "pickup_p99": quantile(waits, 0.99)}


def idle(contender: Contender, size: Size, site: Site) -> Figures:
    """A worker that has had some jobs and has nothing to do: CPU time of its processes; statements where they are counted."""
    with measure_setup(contender, WARM_UP_JOBS, site) as place, place.worker() as worker:
        place.produce("wake")
        time.sleep(min(2.0, size.idle_seconds))
        # Statements are counted after the CPU time: switching it on makes a server read its settings again.
        figures = {"idle_cpu": idle_percent(worker, size.idle_seconds)}
        counting = site.count_operations(place.environment)
        if counting is not None:
            with counting as counted:
                time.sleep(size.idle_seconds)
                figures |= {name: count / size.idle_seconds for name, count in counted().items()}
    return figures


def idle_percent(worker: Worker, seconds: float) -> float:
    before, began = worker.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return 100 * (worker.cpu_seconds() - before) / (time.monotonic() - began)


def lateness(contender: Contender, size: Size, site: Site) -> Figures:
    dice = random.Random(size.seed)
    delays = sorted(dice.uniform(2.0, 2.0 + size.scheduled / 40) for _ in range(size.scheduled))
    with measure_setup(contender, WARM_UP_JOBS + size.scheduled, site) as place, place.worker(), place.scheduler():
        due = place.produce("schedule", delays=delays)
        started = place.ledger.timestamps(WARM_UP_JOBS, WARM_UP_JOBS + size.scheduled)
    late = [(start - due_at) / 1e6 for start, due_at in zip(started, due, strict=True)]
    return {
        "late_p50": quantile(late, 0.5),
        "late_p99": quantile(late, 0.99),
        "late_max": max(late),
        "early": sum(each < 0 for each in late),
    }


def floor(contender: Contender, size: Size, site: Site) -> Figures:
    jobs = max(int(contender.drain_jobs * size.drain), 1_000)
    with measure_setup(contender, 1, site) as place:
        added, drained_rate = place.produce("floor", count=jobs)
    return {"enqueue_bulk": added, "drained": drained_rate}


def quantile(values: Sequence[float], part: float) -> float:
    """Nearest rank: always a value that was seen."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]
