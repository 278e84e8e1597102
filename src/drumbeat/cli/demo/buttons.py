"""The extra buttons of the demo's dashboard: one for each way a job can end, one to kill a worker, one to clear.

Each is a write request of the API like any other. The scenario does not count these jobs: its own jobs have a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from drumbeat import Drumbeat
from drumbeat.cli.demo import app as shop
from drumbeat.cli.demo.scenario import PAGES
from drumbeat.cli.demo.workers import DemoWorkers
from drumbeat.clock import SYSTEM
from drumbeat.core.stats import INTERVALS
from drumbeat.handle import JobHandle
from drumbeat.web.panels import Button, ButtonAction, ButtonResult, Panel
from drumbeat.web.problem import Problem
from drumbeat.web.route import AccessRole

BURST = 10_000
DELAY_S = 10
BATCH = 1_000
CANCEL_TIMEOUT = 3.0
"""Seconds for running jobs to notice that they are cancelled."""

ENQUEUE: dict[str, Callable[[int], Awaitable[JobHandle[Any]]]] = {
    "Success": lambda number: shop.greet.enqueue(f"customer {number}"),
    "Delayed": lambda number: shop.remind.using(delay=DELAY_S).enqueue(number),
    "Transient failure": lambda number: shop.charge.enqueue(number, cents=990),
    "Permanent failure": lambda number: shop.deliver.enqueue(number, address="1 Nowhere Lane", api_key="sk-demo-1234"),
    "Long": lambda _: shop.report.enqueue(PAGES),
}
"""The job of each button that enqueues one."""


def _button(label: str, text: str, action: ButtonAction, **more: Any) -> Button:
    """The first word of the label is its name, in the address."""
    return Button(name=label.split()[0].lower(), label=label, text=text, action=action, **more)


class DemoButtons:
    def __init__(self, app: Drumbeat, workers: DemoWorkers) -> None:
        self._app = app
        self._workers = workers
        self._orders = count(1_000)
        self.is_scenario_running = True
        """Until it has ended, only the scenario itself may kill workers or clear jobs."""

    def panel(self) -> Panel:
        job, admin = self._job_button, AccessRole.ADMIN
        return Panel(
            name="demo",
            title="Try it",
            text="Enqueue a job, and watch how it ends.",
            buttons=(
                job("Success", "a job that succeeds at once", "it succeeds at once"),
                job("Delayed", f"a job that is due in {DELAY_S} s", f"it starts in {DELAY_S} s"),
                job("Transient failure", "fails twice, then succeeds", "it fails twice, then succeeds"),
                job("Permanent failure", "fails until it is a dead letter", "it will be a dead letter"),
                job("Long", "runs for 4 s and reports its progress", "its page shows the progress"),
                _button("Burst", f"{BURST:,} small jobs at once", self.burst),
                _button("Kill a worker", "SIGKILL to the busiest; another takes its place", self.kill, role=admin),
                _button(
                    "Clear", "cancel, discard and delete all jobs of the demo", self.clear, role=admin, danger=True
                ),
            ),
        )

    def _job_button(self, label: str, text: str, outcome: str) -> Button:
        async def press() -> ButtonResult:
            job = await ENQUEUE[label](next(self._orders))
            return ButtonResult(message=f"Enqueued {job.id}: {outcome}")

        return _button(label, text, press)

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
        while await store.stats.prune(dict.fromkeys(INTERVALS, now), idle_since=now, limit=BATCH) == BATCH:
            pass
        return deleted
