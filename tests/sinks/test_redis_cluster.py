"""Streams on a cluster of Redis: real nodes, whose slots move and of which one dies."""

from collections.abc import Iterator

import pytest

from drumbeat import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.errors import ConfigError
from drumbeat.sinks import Message, Outlet, RedisStreamSink, SinkUnavailable
from tests.servers.redis import Cluster, RedisServer
from tests.waiting import until
from tests.worker.worker_harness import run_worker

STREAM = "reminders"


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """It takes two seconds until new nodes take writes."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """Empty. Whoever kills a node has a cluster of its own, and whoever moves a slot a stream of its own."""
    for node in shared_cluster.nodes:
        node.ask("FLUSHALL")
    return shared_cluster


def stranger_to(cluster: Cluster, stream: str) -> RedisServer:
    """A node that does not have the stream."""
    owner = cluster.owner_of(stream)
    return next(node for node in cluster.nodes if node is not owner)


def url_of(node: RedisServer) -> str:
    return f"redis://127.0.0.1:{node.port}?cluster=true"


def message(id: str) -> Message:
    return Message(id=id, key=None, body=b"{}")


def ids(node: RedisServer, stream: str = STREAM) -> list[str]:
    return [fields[b"id"].decode() for _, fields in node.ask("XRANGE", stream, "-", "+")]


async def test_jobs_reach_the_node_that_has_the_stream_once_each(app: Drumbeat, cluster: Cluster) -> None:
    sink = RedisStreamSink(stream=STREAM, url=url_of(stranger_to(cluster, STREAM)))
    remind = app.forward("remind", to=sink)
    jobs = await app.enqueue_many([remind.bind(n) for n in range(1500)])
    async with run_worker(app):
        for job in jobs:
            await job.result(timeout=30)
    assert sorted(ids(cluster.owner_of(STREAM))) == sorted(job.id for job in jobs)


async def test_a_stream_and_its_memory_share_a_slot_whatever_the_name(cluster: Cluster) -> None:
    for stream in ("plain", "of{orders}", "{orders}", "of{orders", "{of}{orders}", "{of{orders}"):
        outlet = RedisStreamSink(stream=stream, url=cluster.url).connect(SYSTEM)
        first, second = message(f"a of {stream}"), message(f"b of {stream}")
        assert await outlet.send([first]) == [None], stream
        assert await outlet.send([first, second]) == [None, None], stream
        await outlet.close()
        assert ids(cluster.owner_of(stream), stream) == [first.id, second.id]


async def test_a_stream_is_followed_when_its_slot_moves(cluster: Cluster) -> None:
    stream = "moved"
    outlet = RedisStreamSink(stream=stream, url=cluster.url).connect(SYSTEM)
    await outlet.send([message("before")])
    source, target = cluster.owner_of(stream), stranger_to(cluster, stream)
    source.ask("DEL", stream, f"{{{stream}}}:sent")
    cluster.move(source.ask("CLUSTER", "KEYSLOT", stream), source, target)
    assert await outlet.send([message("after")]) == [None]
    await outlet.close()
    assert ids(target, stream) == ["after"]


async def test_a_node_that_dies_is_waited_for_until_its_replica_has_taken_over() -> None:
    with Cluster() as cluster, cluster.replica_of(owner := cluster.owner_of(STREAM)) as replica:
        outlet = RedisStreamSink(stream=STREAM, url=url_of(owner), timeout=1).connect(SYSTEM)
        assert await outlet.send([message("before")]) == [None]
        await until(lambda: replica.ask("DBSIZE") == 2, what="the copy")
        owner.kill()
        with pytest.raises(SinkUnavailable):
            await outlet.send([message("after")])
        await until(lambda: _is_sent(outlet, message("after")), deadline=40, what="the replica to take over")
        assert ids(replica) == ["before", "after"]
        await outlet.close()


async def _is_sent(outlet: Outlet, message: Message) -> bool:
    try:
        return await outlet.send([message]) == [None]
    except SinkUnavailable:
        return False


async def test_a_cluster_that_is_not_there_is_away() -> None:
    with RedisServer() as server:
        url = url_of(server)
    outlet = RedisStreamSink(stream=STREAM, url=url, timeout=0.5).connect(SYSTEM)
    with pytest.raises(SinkUnavailable):
        await outlet.send([message("a")])
    await outlet.close()


async def test_whoever_meets_a_cluster_without_having_said_so_is_told(cluster: Cluster) -> None:
    url = stranger_to(cluster, STREAM).url
    outlet = RedisStreamSink(stream=STREAM, url=url).connect(SYSTEM)
    with pytest.raises(SinkUnavailable, match=r"\?cluster=true"):
        await outlet.send([message("a")])
    await outlet.close()


@pytest.mark.parametrize(
    ("stream", "url", "argument"),
    [
        (STREAM, "redis://localhost?cluster=perhaps", "url"),
        ("odd}", "redis://localhost?cluster=true", "stream"),
        ("odd{}", "redis://localhost?cluster=true", "stream"),
    ],
)
def test_what_cannot_be_on_a_cluster_is_refused_at_once(stream: str, url: str, argument: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RedisStreamSink(stream=stream, url=url)
    assert refused.value.setting == argument


def test_a_database_that_a_cluster_does_not_have_is_refused_when_it_is_opened() -> None:
    with pytest.raises(ConfigError, match="RedisStreamSink"):
        RedisStreamSink(stream=STREAM, url="redis://localhost/3?cluster=true").connect(SYSTEM)
