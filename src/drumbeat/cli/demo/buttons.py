"""The buttons that the dashboard has in the demo, and only there: one for each fate of a job, one for trouble, one for order.

Each is a write of the API like any other. What is enqueued here is not counted by the play, which goes by its own key.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

from drumbeat import Drumbeat
from drumbeat.cli.demo import app as shop
from drumbeat.cli.demo.crew import Crew
from drumbeat.clock import SYSTEM
from drumbeat.web.call import Role
from drumbeat.web.panels import Button, Panel, Pressed
from drumbeat.web.problem import Problem

BURST = 10_000
DELAY = 10
PAGES = 120
BATCH = 1_000
QUIET_WITHIN = 3.0
"""Seconds for running jobs to hear that they are cancelled."""


class Buttons:
    def __init__(self, app: Drumbeat, crew: Crew) -> None:
        self._app = app
        self._crew = crew
        self._orders = count(1_000)
        self.is_playing = True
        """As long as the play is on, nobody but itself kills workers or clears the stage."""

    def panel(self) -> Panel:
        return Panel(
            name="demo",
            title="Try it",
            text="Press, and watch what becomes of it.",
            buttons=(
                Button(name="success", label="Success", text="a job that succeeds at once", press=self.success),
                Button(name="delayed", label="Delayed", text=f"a job that is due in {DELAY} s", press=self.delayed),
                Button(
                    name="transient",
                    label="Transient failure",
                    text="fails twice, then succeeds",
                    press=self.transient,
                ),
                Button(
                    name="permanent",
                    label="Permanent failure",
                    text="fails until it is a dead letter",
                    press=self.permanent,
                ),
                Button(name="long", label="Long", text="runs for 4 s and tells how far it is", press=self.long),
                Button(name="burst", label="Burst", text=f"{BURST:,} small jobs at once", press=self.burst),
                Button(
                    name="kill",
                    label="Kill a worker",
                    text="SIGKILL to the busiest; another takes its place",
                    press=self.kill,
                    role=Role.ADMIN,
                ),
                Button(
                    name="clear",
                    label="Clear",
                    text="cancel, discard and forget all jobs of the demo",
                    press=self.clear,
                    role=Role.ADMIN,
                    danger=True,
                ),
            ),
        )

    async def success(self) -> Pressed:
        job = await shop.greet.enqueue(f"customer {next(self._orders)}")
        return Pressed(said=f"Enqueued {job.id}: it succeeds at once")

    async def delayed(self) -> Pressed:
        job = await shop.remind.using(delay=DELAY).enqueue(next(self._orders))
        return Pressed(said=f"Enqueued {job.id}: it starts in {DELAY} s")

    async def transient(self) -> Pressed:
        job = await shop.charge.enqueue(order=next(self._orders), cents=990)
        return Pressed(said=f"Enqueued {job.id}: it fails twice, then succeeds")

    async def permanent(self) -> Pressed:
        job = await shop.deliver.enqueue(next(self._orders), address="1 Nowhere Lane", api_key="sk-demo-1234")
        return Pressed(said=f"Enqueued {job.id}: it will be a dead letter")

    async def long(self) -> Pressed:
        job = await shop.report.enqueue(PAGES)
        return Pressed(said=f"Enqueued {job.id}: its page shows how far it is")

    async def burst(self) -> Pressed:
        # Behind everything else: who presses another button meanwhile shall see its job at once.
        task = shop.resize.using(queue="low", priority=9)
        made = await self._app.enqueue_many(task.bind(next(self._orders)) for _ in range(BURST))
        return Pressed(said=f"Enqueued {len(made):,} jobs in one transaction", touched=len(made))

    async def kill(self) -> Pressed:
        self._not_while_playing()
        workers = await self._app.instances.list()
        if not workers:
            raise Problem(409, "no worker is alive at this moment: the next one is on its way")
        # What runs now, not what ran at the last heartbeat: who has just seen a job start wants its worker killed.
        running = Counter(job.instance for job in await self._app.jobs.list(state="running", limit=1_000))
        victim = max(workers, key=lambda each: running[each.id])
        self._crew.kill(victim.pid)
        return Pressed(said=f"kill -9 {victim.pid}: worker {victim.id} is gone, its supervisor starts another")

    async def clear(self) -> Pressed:
        self._not_while_playing()
        await self._app.jobs.bulk("cancel", all=True)
        await self._quiet()
        await self._app.jobs.bulk("discard", all=True)
        return Pressed(said="Cleared; the audit stays", touched=await self._forget())

    def _not_while_playing(self) -> None:
        if self.is_playing:
            raise Problem(409, "the play is still on, and it kills a worker itself: wait a few seconds")

    async def _quiet(self) -> None:
        """Wait until cancelled jobs no longer run."""
        began_at = SYSTEM.monotonic()
        while SYSTEM.monotonic() - began_at < QUIET_WITHIN:
            if not (await self._app.jobs.counts()).running:
                return
            await SYSTEM.sleep(0.05)

    async def _forget(self) -> int:
        """Remove history and charts, as the leader does it with what is old. Returns how many jobs were forgotten."""
        store = await self._app.store()
        now = await store.inspect.now()
        forgotten, last = 0, BATCH
        while last == BATCH:
            last = await store.jobs.prune(now, BATCH)
            forgotten += last
        while await store.stats.prune(tens=now, minutes=now, gone=now, limit=BATCH) == BATCH:
            pass
        return forgotten
