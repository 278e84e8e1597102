"""`drumbeat run --burst`: stop the worker once the store has nothing left to do.

The store decides, not this worker: a job that another instance runs may enqueue the next one. Idle means that no job of the
queues that this worker takes is due or running, and that no schedule is due. Jobs that are due later, retries included, jobs
that no worker can run, and paused queues do not count.
"""

import logging

from drumbeat.clock import jitter
from drumbeat.errors import StoreUnavailable
from drumbeat.service import OutageBackoff, Wakeup
from drumbeat.store.protocol import Store
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.fetcher import Fetcher
from drumbeat.worker.reporter import OutcomeReporter

log = logging.getLogger(__name__)

MIN_DELAY = 0.05


class BurstWatch:
    def __init__(self, core: WorkerCore, store: Store, fetcher: Fetcher, reporter: OutcomeReporter) -> None:
        self._core = core
        self._store = store
        self._queues = frozenset(fetcher.queues)
        self._reporter = reporter
        self._shutdown = core.shutdown
        self._clock = core.clock

    async def run(self) -> None:
        """Until the store is idle, or the worker stops for another reason."""
        settings, delay = self._core.settings, MIN_DELAY
        backoff, wakeup = OutageBackoff(self._clock, self._core.outage_reporter), Wakeup(self._clock)
        self._shutdown.on_stop.append(wakeup.set)
        # Every controller fires what is overdue by a second; what nobody can fire must not hold us up for ever.
        self._fires_until = self._clock.monotonic() + (0.0 if settings.role == "worker" else settings.dead_after)
        while not self._shutdown.is_stopping:
            wakeup.clear()
            if self._reporter.held:
                delay = MIN_DELAY
            else:
                try:
                    if await self._is_idle():
                        log.info("nothing is left to do: this worker stops")
                        self._shutdown.request()
                        return
                except StoreUnavailable as error:
                    backoff.record_failure(error)
                else:
                    backoff.reset()
                delay = min(2 * delay, settings.poll)
            await wakeup.wait(jitter(delay))

    async def _is_idle(self) -> bool:
        # Twice: a job may have ended before the first look, and its children may have become due after it.
        return await self._looks_idle() and not self._reporter.held and await self._looks_idle()

    async def _looks_idle(self) -> bool:
        while await self._store.dependencies.advance():  # what waits for jobs that have ended becomes due
            pass
        # Schedules first: a fire between the two questions is seen as a job.
        if self._clock.monotonic() < self._fires_until and (await self._store.schedules.get_due(1)).schedules:
            return False
        queues = [each for each in await self._store.inspect.list_queues() if each.name in self._queues]
        return not any(each.running or (each.oldest_due is not None and not each.paused) for each in queues)
