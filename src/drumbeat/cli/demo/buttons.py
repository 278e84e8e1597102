"""The extra buttons of the demo's dashboard: one for each way a job can end, one to kill a worker, one to clear.

Each is a write request of the API like any other. The scenario does not count these jobs: its own jobs have a key.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

from drumbeat import Drumbeat
from drumbeat.cli.demo import app as shop
from drumbeat.cli.demo.workers import DemoWorkers
from drumbeat.clock import SYSTEM
from drumbeat.web.panels import Button, ButtonResult, Panel
from drumbeat.web.problem import Problem
from drumbeat.web.route import AccessRole

BURST = 10_000
DELAY_S = 10
PAGES = 120
BATCH = 1_000
CANCEL_TIMEOUT = 3.0
"""Seconds for running jobs to notice that they are cancelled."""


class DemoButtons:
    def __init__(self, app: Drumbeat, workers: DemoWorkers) -> None:
        self._app = app
        self._workers = workers
        self._orders = count(1_000)
        self.is_scenario_running = True
        """Until it has ended, only the scenario itself may kill workers or clear jobs."""

    def panel(self) -> Panel:
        return Panel(
            name="demo",
            title="Try it",
            text="Enqueue a job, and watch how it ends.",
            buttons=(
                Button(name="success", label="Success", text="a job that succeeds at once", action=self.success),
                Button(name="delayed", label="Delayed", text=f"a job that is due in {DELAY_S} s", action=self.delayed),
                Button(
                    name="transient",
                    label="Transient failure",
                    text="fails twice, then succeeds",
                    action=self.transient,
                ),
                Button(
                    name="permanent",
                    label="Permanent failure",
                    text="fails until it is a dead letter",
                    action=self.permanent,
                ),
                Button(name="long", label="Long", text="runs for 4 s and reports its progress", action=self.long),
                Button(name="burst", label="Burst", text=f"{BURST:,} small jobs at once", action=self.burst),
                Button(
                    name="kill",
                    label="Kill a worker",
                    text="SIGKILL to the busiest; another takes its place",
                    action=self.kill,
                    role=AccessRole.ADMIN,
                ),
                Button(
                    name="clear",
                    label="Clear",
                    text="cancel, discard and delete all jobs of the demo",
                    action=self.clear,
                    role=AccessRole.ADMIN,
                    danger=True,
                ),
            ),
        )

    async def success(self) -> ButtonResult:
        job = await shop.greet.enqueue(f"customer {next(self._orders)}")
        return ButtonResult(message=f"Enqueued {job.id}: it succeeds at once")

    async def delayed(self) -> ButtonResult:
        job = await shop.remind.using(delay=DELAY_S).enqueue(next(self._orders))
        return ButtonResult(message=f"Enqueued {job.id}: it starts in {DELAY_S} s")

    async def transient(self) -> ButtonResult:
        job = await shop.charge.enqueue(order=next(self._orders), cents=990)
        return ButtonResult(message=f"Enqueued {job.id}: it fails twice, then succeeds")

    async def permanent(self) -> ButtonResult:
        job = await shop.deliver.enqueue(next(self._orders), address="1 Nowhere Lane", api_key="sk-demo-1234")
        return ButtonResult(message=f"Enqueued {job.id}: it will be a dead letter")

    async def long(self) -> ButtonResult:
        job = await shop.report.enqueue(PAGES)
        return ButtonResult(message=f"Enqueued {job.id}: its page shows the progress")

    async def burst(self) -> ButtonResult:
        # At the lowest priority: a job of another button pressed meanwhile should start at once.
        task = shop.resize.using(queue="low", priority=9)
        made = await self._app.enqueue_many(task.bind(next(self._orders)) for _ in range(BURST))
        return ButtonResult(message=f"Enqueued {len(made):,} jobs in one transaction", touched=len(made))

    async def kill(self) -> ButtonResult:
        self._check_scenario_ended()
        workers = await self._app.instances.list()
        if not workers:
            raise Problem(409, "no worker is alive at present: the next one is starting")
        # Jobs that run now, not at the last heartbeat: a user who sees a job start expects its worker to be killed.
        running = Counter(job.instance for job in await self._app.jobs.list(state="running", limit=1_000))
        victim = max(workers, key=lambda each: running[each.id])
        self._workers.kill(victim.pid)
        return ButtonResult(message=f"kill -9 {victim.pid}: worker {victim.id} is gone, its supervisor starts another")

    async def clear(self) -> ButtonResult:
        self._check_scenario_ended()
        await self._app.jobs.bulk("cancel", all=True)
        await self._wait_until_idle()
        await self._app.jobs.bulk("discard", all=True)
        return ButtonResult(message="Cleared; the audit log stays", touched=await self._prune_all())

    def _check_scenario_ended(self) -> None:
        if self.is_scenario_running:
            raise Problem(409, "the scenario is still running, and kills a worker itself: wait a few seconds")

    async def _wait_until_idle(self) -> None:
        """Wait until cancelled jobs no longer run."""
        began_at = SYSTEM.monotonic()
        while SYSTEM.monotonic() - began_at < CANCEL_TIMEOUT:
            if not (await self._app.jobs.counts()).running:
                return
            await SYSTEM.sleep(0.05)

    async def _prune_all(self) -> int:
        """Prune all history and charts, as the leader prunes old ones. Returns the number of deleted jobs."""
        store = await self._app._internals.store()
        now = await store.inspect.now()
        deleted, last = 0, BATCH
        while last == BATCH:
            last = await store.jobs.prune(now, BATCH)
            deleted += last
        while await store.stats.prune(ten_seconds_before=now, minutes_before=now, idle_since=now, limit=BATCH) == BATCH:
            pass
        return deleted
