"""The measures of load: many jobs due at once, several worker processes, another session's snapshot, a long backlog.

Each starts, as those of bench/measures.py do, on an empty store.
"""

from contextlib import ExitStack

from bench.contender import FLOOR, NAP, Contender
from bench.crowd import Crowd
from bench.measures import Figures, Size, drain, drain_jobs, measure_drain
from bench.processes import measure_setup
from bench.producer import WARM_UP_JOBS
from bench.sites import Site

CONTENDED_CONCURRENCY = 10
OTHER_AFTER = 0.3
"""Seconds into the burst at which a job of another queue is enqueued."""


def burst(contender: Contender, size: Size, site: Site) -> Figures:
    """Jobs that are all due at the same time: when the first starts, how fast they run, and whether other jobs still run."""
    jobs = max(int(contender.drain_jobs * size.burst), 100)
    first, other = WARM_UP_JOBS, contender.has_other_queue
    lead = 2 + jobs / contender.fill_rate
    with measure_setup(contender, first + jobs + 1, site) as place, place.worker(other_queue=other), place.scheduler():
        seen = place.produce("burst", count=jobs, lead=lead, other_after=OTHER_AFTER, other=other)
        started = place.ledger.timestamps(first, first + jobs)
        other_started = place.ledger.timestamps(first + jobs, first + jobs + 1)[0]
    figures = {
        "burst_first_ms": (min(started) - seen["due"]) / 1e6,
        "burst_drained": jobs / (seen["finished"] - min(started)) * 1e9,
    }
    # After the burst it would tell nothing.
    if other and seen["called"] < max(started):
        figures["burst_other_ms"] = (other_started - seen["called"]) / 1e6
    return figures


def contention(contender: Contender, size: Size, site: Site) -> Figures:
    """Worker processes side by side, handlers that wait 10 ms, 10 at a time in each: jobs in a second, and runs too many."""
    figures: Figures = {"run_twice": 0}
    for processes in size.crowds:
        rate, twice = measure_crowd(contender, processes, size, site)
        figures[f"contended_{processes}"] = rate
        figures["run_twice"] += twice
    if len(size.crowds) > 1:
        figures["contended_ratio"] = rate / figures[f"contended_{size.crowds[0]}"]
    return figures


def measure_crowd(contender: Contender, processes: int, size: Size, site: Site) -> tuple[float, int]:
    jobs = min(processes * size.contended, max(contender.contended_jobs, processes * 50))
    with ExitStack() as stack:
        place = stack.enter_context(measure_setup(contender, Crowd.slots(processes, jobs), site))
        place.produce("fill", count=jobs, task=NAP)
        watching = place.begin("crowd", count=jobs, processes=processes, seconds=size.patience)
        environments = [Crowd.environment(number, processes, jobs) for number in range(processes)]
        workers = [
            stack.enter_context(place.worker(environment=environment, concurrency=CONTENDED_CONCURRENCY))
            for environment in environments
        ]
        began, finished = watching.answer()
        for worker in workers:
            worker.check()
            worker.ask_to_stop()
        runs = Crowd(place.folder / "ledger", processes=processes, jobs=jobs).count_runs()
    return jobs / (finished - began) * 1e9, runs - jobs


def snapshot(contender: Contender, size: Size, site: Site) -> Figures:
    """A drain while another session holds a snapshot open, so that nothing that was deleted can be cleared away.

    Compared with the same number of jobs without it: a longer drain may have another rate.
    """
    jobs = max(int(contender.drain_jobs * size.snapshot), 1_000)
    without, under = (snapshot_rate(contender, jobs, size, site, held=held) for held in (False, True))
    return {"snapshot_drained": under, "snapshot_ratio": under / without}


def snapshot_rate(contender: Contender, jobs: int, size: Size, site: Site, *, held: bool) -> float:
    with measure_setup(contender, jobs, site) as place, ExitStack() as stack:
        if FLOOR in contender.measures:
            return place.produce("floor", count=jobs, snapshot=held)[1]
        place.produce("fill", count=jobs)
        if held:
            stack.enter_context(site.snapshot(place.environment))
        return measure_drain(place, jobs, size).rate


def backlog(contender: Contender, size: Size, site: Site) -> Figures:
    """The same drain beside many jobs of a far future, against an empty store in the same minute."""
    alone = drain(contender, size, site)
    jobs = drain_jobs(contender, size)
    future = min(size.backlog, contender.backlog_jobs)
    figures: Figures = {"backlog_jobs": future}
    with measure_setup(contender, jobs, site) as place:
        empty = site.memory(place.environment)
        place.produce("future", count=future)
        filled = site.memory(place.environment)
        if empty is not None and filled is not None:
            figures["backlog_bytes"] = (filled - empty) / future
        place.produce("fill", count=jobs)
        with place.scheduler():
            beside = measure_drain(place, jobs, size)
    return figures | {
        "backlog_drained": beside.rate,
        "backlog_ratio": beside.rate / alone["drained"],
        "backlog_growth_mb": beside.worker_mb - alone["resident_mb"],
    }
