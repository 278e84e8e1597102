"""Jobs in PostgreSQL, hints in Redis: the second store makes things quick, and its loss costs nothing else."""

from collections.abc import AsyncIterator, Iterator

import pytest

from drumbeat import Drumbeat
from drumbeat.core.instance import InstanceState
from drumbeat.errors import ConfigError, StoreUnavailable
from drumbeat.store import coordinated
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.store.urls import open_store
from tests.conftest import SERVERS
from tests.contract.making import new_job
from tests.servers.redis import RedisServer
from tests.waiting import until
from tests.worker.worker_harness import run_worker


@pytest.fixture
def second() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def url() -> str:
    return SERVERS["postgres"].fresh_url()


@pytest.fixture
async def pair(url: str, second: RedisServer) -> AsyncIterator[Store]:
    async with await open_store(url, coordination=second.url) as store:
        yield store


async def test_a_hint_is_sent_by_the_second_store_and_not_by_the_first(
    url: str, second: RedisServer, pair: Store
) -> None:
    by_first: list[int] = []
    by_second: list[int] = []
    async with (
        await open_store(url) as first,
        await open_store(second.url) as other,
        first.wake.listen(Subscriber(by_first.append)),
        other.wake.listen(Subscriber(by_second.append)),
    ):
        await pair.jobs.add([new_job()])
        await until(lambda: by_second)
        await first.jobs.add(
            [new_job()]
        )  # its own way, and hints: whatever the first one was sent would have come before
        await until(lambda: by_first)
    assert len(by_first) == 1


async def test_while_the_second_store_is_away_hints_go_by_the_first(url: str, second: RedisServer, pair: Store) -> None:
    hints: list[int] = []
    async with (
        await open_store(url, coordination=second.url) as listener,
        listener.wake.listen(Subscriber(hints.append)),
    ):
        second.kill()
        for _ in range(2):  # with the first of them it is noticed
            await pair.jobs.add([new_job()])
            await until(lambda: not pair.wake._second._is_up)  # type: ignore[attr-defined]
        await until(lambda: hints)
        second.start()
        await until(lambda: pair.wake._second._is_up)  # type: ignore[attr-defined]
        hints.clear()
        await pair.jobs.add([new_job()])
        await until(lambda: hints)


async def test_a_second_store_that_stays_away_is_not_taken_for_one_that_is_back(
    url: str, second: RedisServer, pair: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinated, "RETRY_DELAY_S", 0.05)
    tried = 0
    found = pair.wake._second.store  # type: ignore[attr-defined]

    async def counted() -> Store:
        nonlocal tried
        tried += 1
        return await found()  # type: ignore[no-any-return]

    monkeypatch.setattr(pair.wake._second, "store", counted)  # type: ignore[attr-defined]
    second.kill()
    await pair.jobs.add([new_job()])
    await until(lambda: tried >= 3)
    assert not pair.wake._second._is_up  # type: ignore[attr-defined]
    second.start()
    await until(lambda: pair.wake._second._is_up)  # type: ignore[attr-defined]


async def test_a_second_store_that_is_away_at_the_start_is_used_when_it_comes(url: str, second: RedisServer) -> None:
    second.kill()
    hints: list[int] = []
    async with await open_store(url, coordination=second.url) as pair, pair.wake.listen(Subscriber(hints.append)):
        await pair.jobs.add([new_job()])
        await until(lambda: hints)
        second.start()
        async with await open_store(second.url) as other:
            await until(lambda: second.ask("PUBSUB", "NUMSUB", "{drumbeat}:wake")[1] == 1)
            hints.clear()
            await other.wake.notify(0)
            await until(lambda: hints == [0])


@pytest.mark.parametrize("loss", ["flush", "kill"])
async def test_the_loss_of_the_second_store_loses_no_job_and_declares_no_instance_dead(
    url: str, second: RedisServer, loss: str
) -> None:
    app = Drumbeat(url, coordination=second.url, heartbeat=0.1, dead_after=1)
    done: list[int] = []

    @app.task
    async def count(number: int) -> None:
        done.append(number)

    async with app, run_worker(app):
        for number in range(30):
            await count.enqueue(number)
            if number == 10:
                second.ask("FLUSHALL") if loss == "flush" else second.kill()
        await until(lambda: len(done) == 30, deadline=20)
        beats = [instance.beat for instance in await app.instances.list()]
        await until_beats(app, beats)
        [instance] = await app.instances.list(all=True)
    assert sorted(done) == list(range(30))
    assert instance.state is InstanceState.ALIVE


async def until_beats(app: Drumbeat, beats: list[int]) -> None:
    """More than dead_after later by the heart's own count."""
    store = await app._internals.store()

    async def later() -> bool:
        return next(each.beat for each in await store.inspect.list_instances()) > beats[0] + 15

    await until(later)


async def test_a_file_cannot_coordinate(url: str) -> None:
    with pytest.raises(ConfigError, match="a file cannot coordinate other machines"):
        await open_store(url, coordination="sqlite:///x.db")


async def test_a_first_store_that_is_away_raises_at_once(second: RedisServer) -> None:
    with pytest.raises(StoreUnavailable):
        await open_store("postgresql://127.0.0.1:1/x", coordination=second.url)
