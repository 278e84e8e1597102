"""Dispatchers that are killed in the middle of batches: nothing is lost, and what is sent again has the same id."""

import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat.app import Drumbeat
from drumbeat.core.job import JobState
from tests.apps import dispatching
from tests.servers.kafka import KafkaCluster, Reader
from tests.servers.redis import RedisServer
from tests.system.workers import Cluster, cluster_of
from tests.waiting import until

Pair = tuple[Cluster, Drumbeat]
JOBS = 6000
KILLS = 3
ROUNDS = 5
"""A worker that is faster than we can look has told of its batch before it is killed: then there is another round."""
STOPPED, TOO_LATE = "stopped", "too late"


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    with cluster_of(tmp_path, "tests.apps.dispatching", monkeypatch) as pair:
        yield pair


async def _dispatched(pair: Pair, task: Any, sent: Callable[[], int], **environ: str) -> list[str]:
    """The ids of the jobs, after they have all succeeded under dispatchers of which some were killed while they sent."""
    cluster, app = pair
    async with app:
        jobs: list[Any] = []
        workers = [cluster.start(**environ) for _ in range(2)]
        for _ in range(ROUNDS):
            orders = range(len(jobs), len(jobs) + JOBS)
            jobs += await app.enqueue_many([task.using(key=f"order:{n}").bind({"order": n}) for n in orders])
            for _ in range(KILLS):
                found = await until(lambda: _caught(app, workers[0]), deadline=30, what=f"a batch\n{cluster.logs()}")
                if found == TOO_LATE:
                    break
                victim = workers.pop(0)
                victim.kill()
                victim.wait(10)
                workers.append(cluster.start(**environ))
                before, total = sent(), len(jobs)
                await until(
                    lambda before=before, total=total: (now := sent()) > before or now >= total,
                    deadline=30,
                    what=f"more to be sent\n{cluster.logs()}",
                )
            await until(lambda: _is_done(app), deadline=60, what=f"the end\n{cluster.logs()}")
            if await _was_one_hit(app, [job.id for job in jobs]):
                break
        else:
            pytest.fail("nobody was killed in the middle of a batch")
        assert not await app.dead.list()
        for worker in workers:
            worker.terminate()
        assert [worker.wait(20) for worker in workers] == [0, 0]
    return sorted(job.id for job in jobs)


async def _caught(app: Drumbeat, victim: "subprocess.Popen[bytes]") -> str:
    """Stop it, if it has jobs in its hands."""
    victim.send_signal(signal.SIGSTOP)
    mine = [each.id for each in await app.instances.list() if each.pid == victim.pid]
    if any(job.instance in mine for job in await app.jobs.list(state=JobState.RUNNING, limit=1000)):
        return STOPPED
    victim.send_signal(signal.SIGCONT)
    return TOO_LATE if await _is_done(app) else ""


async def _is_done(app: Drumbeat) -> bool:
    return not await app.jobs.list(state=JobState.PENDING, limit=1) and not await app.jobs.list(
        state=JobState.RUNNING, limit=1
    )


async def _was_one_hit(app: Drumbeat, ids: list[str]) -> bool:
    """Whether a job ran on a worker that was killed."""
    for id in ids:
        if (await app.jobs.show(id)).crashes > 0:
            return True
    return False


async def test_killed_dispatchers_lose_nothing_and_a_stream_gets_each_job_once(pair: Pair) -> None:
    with RedisServer() as broker:
        ids = await _dispatched(
            pair,
            dispatching.to_stream,
            lambda: broker.ask("XLEN", dispatching.TOPIC),
            **{dispatching.REDIS: broker.url},
        )
        entries = broker.ask("XRANGE", dispatching.TOPIC, "-", "+")
    assert sorted(fields[b"id"].decode() for _, fields in entries) == ids


async def test_killed_dispatchers_lose_nothing_and_a_topic_gets_repeats_of_the_same_id_only(pair: Pair) -> None:
    kafka = KafkaCluster()
    reader = Reader(kafka, dispatching.TOPIC)
    ids = await _dispatched(
        pair, dispatching.to_topic, lambda: len(reader.read()), **{dispatching.KAFKA: kafka.servers}
    )
    await until(lambda: len({event["id"] for event in reader.events()}) >= JOBS, deadline=20)
    sent = Counter(event["id"] for event in reader.events())
    data = {(event["id"], event["subject"], event["data"]["order"]) for event in reader.events()}
    reader.close()
    assert sorted(sent) == ids
    assert len(data) == JOBS, "what is sent again is the same"
