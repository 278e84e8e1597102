"""GET /metrics: one look at the store, as Prometheus reads it."""

from __future__ import annotations

from drumbeat.model.job import JobFilter
from drumbeat.web.call import Answer, Call
from drumbeat.web.metrics import CONTENT_TYPE, Sample, render
from drumbeat.web.ticker import letters


async def scrape(call: Call) -> Answer:
    """The metrics of the whole cluster: every dashboard of one store says the same, so scrape one."""
    store = await call.host.store()
    counts = await store.inspect.counts(JobFilter())
    sample = Sample(
        now=await store.inspect.now(),
        totals=await store.stats.totals(),
        queues=await call.host.queues.list(),
        instances=await store.inspect.instances(),
        counts=counts,
        dead=await letters(store, counts),
        leader=await store.inspect.leader(),
    )
    return Answer(body=render(sample), media=CONTENT_TYPE)
