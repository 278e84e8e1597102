"""Many tenants on four worker processes that are killed and stopped: one that floods them delays each other by a turn at most.

With DRUMBEAT_FULL=1 there are 200 of them, and 100,000 jobs of the one.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumbeat import Drumbeat
from drumbeat.clock import SYSTEM
from tests.apps import journal, tenants
from tests.system.workers import Cluster, cluster_of
from tests.waiting import until

TENANTS, FLOOD = (199, 100_000) if os.environ.get("DRUMBEAT_FULL") else (30, 2_500)
PROCESSES, SLOTS = 4, 4
MAX_TURNS = 3
"""Of all slots: that in which a tenant's job comes, the next one, in which it starts, and what runs beside it meanwhile."""


@pytest.fixture
def pair(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Drumbeat]]:
    with cluster_of(tmp_path, "tests.apps.tenants", monkeypatch, url=store_url) as pair:
        yield pair


async def test_a_tenant_that_floods_delays_each_other_one_by_a_turn_at_most(pair: tuple[Cluster, Drumbeat]) -> None:
    cluster, app = pair
    processes = [cluster.start("--concurrency", str(SLOTS)) for _ in range(PROCESSES)]
    async with app:
        flood = [tenants.serve.bind("flood", number) for number in range(FLOOD)]
        for first in range(0, FLOOD, 5_000):
            await app.enqueue_many(flood[first : first + 5_000])
        cluster.wait_for("ends", 100, deadline=60)
        asked: dict[str, int] = {}
        for number in range(TENANTS):
            if number == TENANTS // 3:
                processes[0].kill()
                processes[0] = cluster.start("--concurrency", str(SLOTS))
            if number == TENANTS // 2:
                processes[1].send_signal(signal.SIGSTOP)
            if number == TENANTS * 3 // 4:
                processes[1].send_signal(signal.SIGCONT)
            tenant = f"tenant:{number}"
            await tenants.serve.enqueue(tenant, number)
            asked[tenant] = len(cluster.entries("begins"))
            await SYSTEM.sleep(0.03)

        async def all_have_ended() -> bool:
            counts = await app.queues.show("tenants")
            return counts.ready == 0 and counts.running == 0

        await until(all_have_ended, what="the end of all jobs", deadline=300 if TENANTS > 100 else 90)
    begun = cluster.entries("begins")
    assert {entry.facts["number"] for entry in begun if entry.facts["tenant"] == "flood"} == set(range(FLOOD))
    for tenant, before in asked.items():
        place = next(at for at, entry in enumerate(begun) if entry.facts["tenant"] == tenant)
        assert place - before <= MAX_TURNS * PROCESSES * SLOTS, f"{tenant} waited for {place - before} starts"
    assert most_at_once(cluster.entries(), processes[1].pid) <= tenants.AT_ONCE


def most_at_once(entries: list[journal.Entry], stopped: int) -> int:
    """Handlers of the flood that ran at once. Those of a process that was stopped may go on when it wakes, after their jobs
    were given to others: they are not counted, and neither are runs that a kill has ended."""
    ends = {(entry.pid, entry.facts["number"]) for entry in entries if entry.event == "ends"}
    running: set[tuple[int, int]] = set()
    most = 0
    for entry in entries:
        run = (entry.pid, entry.facts["number"])
        if entry.facts["tenant"] != "flood" or entry.pid == stopped or run not in ends:
            continue
        running.add(run) if entry.event == "begins" else running.discard(run)
        most = max(most, len(running))
    return most
