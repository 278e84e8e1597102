"""The event stream: counters move by themselves, one look at the store serves all, and nobody looks when nobody is there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.core.stats import Resolution, Rollup
from drumbeat.errors import StoreUnavailable
from drumbeat.web import Dashboard, event_stream
from drumbeat.web.rate_tracker import (
    COST_SAMPLES,
    MAX_DELAY,
    STORE_TIME_DIVISOR,
    TICK_INTERVAL,
    QueueSample,
    Rates,
    RateTracker,
)
from tests.contract import making
from tests.waiting import until, within
from tests.web.live_server import EVENTS, ServerSentEvent, follow_events, serve_dashboard


async def enqueue(app: Drumbeat) -> None:
    task = app._internals.registry.find("send_mail")
    assert task is not None
    await task.enqueue("ada")


async def first(told: AsyncIterator[ServerSentEvent], kind: str = "tick", ready: int | None = None) -> ServerSentEvent:
    """The first of this kind, with so many ready jobs."""
    async for each in told:
        if each.kind == kind and (ready is None or each.data["counts"]["ready"] == ready):
            return each
    raise AssertionError("the stream has ended")


async def test_the_first_tick_comes_at_once_and_says_everything(app: Drumbeat, board: Dashboard) -> None:
    await enqueue(app)
    async with serve_dashboard(board) as (address, _), follow_events(address) as told:
        tick = (await first(told)).data
    assert set(tick) == {"at", "counts", "queues", "instances", "leader", "dead", "rates", "health", "store_ms"}
    assert (tick["counts"]["ready"], tick["dead"], tick["leader"]) == (1, 0, None)
    assert tick["instances"] == {"alive": 0, "slots": 0, "running": 0}
    (queue,) = tick["queues"]
    assert (queue["name"], queue["ready"]) == ("mail", 1)
    assert {"lag", "in", "out", "oldest_due", "paused"} <= set(queue)
    assert set(tick["rates"]) == {"started", "succeeded", "failed"}
    assert tick["health"] == {"level": "bad", "text": "No worker is alive"}


async def test_an_enqueue_is_seen_within_a_second(app: Drumbeat, board: Dashboard) -> None:
    async with serve_dashboard(board) as (address, _), follow_events(address) as told:
        await first(told, ready=0)
        await enqueue(app)
        with within(1.0):
            await first(told, ready=1)


async def test_five_viewers_cost_one_look_at_a_time(app: Drumbeat, board: Dashboard) -> None:
    began = SYSTEM.monotonic()
    async with serve_dashboard(board) as (address, _), AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(follow_events(address)) for _ in range(5)]
        ticks = [[(await first(stream)).data["at"] for stream in streams] for _ in range(4)]
        looks, took = board.state.ticker.poll_count, SYSTEM.monotonic() - began
    assert looks <= took / TICK_INTERVAL + 1
    assert len({at for row in ticks for at in row}) <= looks, "all hear of the same looks"


async def test_when_the_viewer_who_looks_goes_away_another_looks(app: Drumbeat, board: Dashboard) -> None:
    async with serve_dashboard(board) as (address, _), follow_events(address) as stays:
        async with follow_events(address) as goes:
            await first(goes)
            await first(stays)
        for ready in (1, 2):
            await enqueue(app)
            await first(stays, ready=ready)


async def test_nobody_looks_at_the_store_when_nobody_looks_at_the_page(app: Drumbeat, board: Dashboard) -> None:
    async with serve_dashboard(board) as (address, _):
        async with follow_events(address) as told:
            await first(told)
            assert await until(lambda: board.state.ticker.is_watched)
        await until(lambda: not board.state.ticker.is_watched, what="the end of the last look")
        looks = board.state.ticker.poll_count
        async with follow_events(address) as told:
            await first(told)
            assert board.state.ticker.poll_count <= looks + 1, "at most the one that somebody new has made"


async def test_a_store_that_goes_away_is_told_and_so_is_its_return(
    app: Drumbeat, board: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = app._internals.store

    async def away() -> None:
        raise StoreUnavailable("somebody pulled the plug")

    async with serve_dashboard(board) as (address, _), follow_events(address) as told:
        await first(told)
        monkeypatch.setattr(app._internals, "store", away)
        assert (await first(told, "store_down")).data == {"reason": "somebody pulled the plug"}
        monkeypatch.setattr(app._internals, "store", really)
        await first(told)


async def test_a_server_that_is_told_to_stop_does_not_wait_for_its_streams(board: Dashboard) -> None:
    async with serve_dashboard(board) as (address, server):
        async with follow_events(address) as told:
            await first(told)
            with within(3.0):
                server.stop()
                assert [each async for each in told][1:] == [], "at most the tick that was under way"


async def test_a_stream_ends_after_its_time_so_that_revoked_rights_take_effect(
    board: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "MAX_STREAM_SECONDS", 0.2)
    async with serve_dashboard(board) as (address, _), follow_events(address) as told, asyncio.timeout(10):
        assert len([each async for each in told]) >= 1
    assert len(board.state.streams) == 0


@pytest.mark.parametrize("bounds", [(2, 50), (500, 2)])
async def test_there_are_only_so_many_streams_at_once_in_all_and_for_each_caller(
    board: Dashboard, bounds: tuple[int, int]
) -> None:
    async with serve_dashboard(board) as (address, _), httpx.AsyncClient(base_url=address) as browser:
        board.state.streams.set_limits(*bounds)
        async with follow_events(address) as told, follow_events(address) as also:
            await first(told)
            await first(also)
            refused = await browser.get(EVENTS)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
            assert refused.json()["type"] == "too-many-viewers"
        await until(lambda: len(board.state.streams) == 0, what="the end of both streams")
        async with follow_events(address) as told:
            await first(told)


async def test_the_first_tick_has_the_rates_of_the_last_stretch_that_all_workers_have_reported(
    app: Drumbeat, board: Dashboard
) -> None:
    store = await app._internals.store()
    hand = await making.worker(store)
    at = (await store.inspect.now() // STRETCH - 2) * STRETCH
    rows = [
        Rollup(resolution=Resolution.TEN_SECONDS, at=at + place * STRETCH, queue="mail", task="send_mail", **numbers)  # type: ignore[arg-type]
        for place in range(3)
        for numbers in [{"started": 50, "succeeded": 40, "failed": 10}]
    ]
    await store.stats.put(hand, rows)
    async with serve_dashboard(board) as (address, _), follow_events(address) as told:
        ticks = [(await first(told)).data for _ in range(3)]
    assert [tick["rates"] for tick in ticks] == [{"started": 5.0, "succeeded": 4.0, "failed": 1.0}] * 3
    assert [tick["queues"][0]["in"] for tick in ticks] == [None] * 3


# --- how often, and how fast ---


def test_the_ticker_never_spends_more_than_its_share_in_the_store() -> None:
    for took in (0.0001, 0.001, 0.0025, 0.0026, 0.01, 0.05):
        pace = RateTracker()
        pause = [pace.next_delay(took) for _ in range(COST_SAMPLES)][-1]
        assert took + pause >= TICK_INTERVAL - 1e-9
        assert took / (took + pause) <= 1 / STORE_TIME_DIVISOR + 1e-9


def test_a_look_that_was_held_up_leaves_nobody_without_news_and_a_slow_store_is_left_alone() -> None:
    pace = RateTracker()
    assert pace.next_delay(0.4) == pytest.approx(TICK_INTERVAL - 0.4), "the first one opens connections"
    for _ in range(COST_SAMPLES):
        pace.next_delay(0.0004)
    assert pace.next_delay(0.4) == pytest.approx(TICK_INTERVAL - 0.4)
    assert [pace.next_delay(0.4) for _ in range(COST_SAMPLES)][-1] == MAX_DELAY


STRETCH = 10_000_000
NOW = 1_000 * STRETCH + 4_000_000
"""The last complete stretch ended 14 s before."""


def counted(**numbers: int) -> Rollup:
    at = NOW // STRETCH * STRETCH - 2 * STRETCH
    return Rollup(resolution=Resolution.TEN_SECONDS, at=at, queue="mail", task="send_mail", **numbers)  # type: ignore[arg-type]


def test_all_speeds_are_of_one_source_and_one_stretch() -> None:
    pace = RateTracker()
    pace.record_interval(NOW, [counted(started=50, succeeded=40, failed=10, dead=5)], working_since=0)
    # What was counted by others meanwhile, such as ten thousand successes in the history, has no say.
    for second in range(0, 25, 1):
        moves = pace.measure(QueueSample(at=NOW - 25_000_000 + second * 1_000_000, live={"mail": 100 + 2 * second}))
    assert moves.rates == Rates(started=5.0, succeeded=4.0, failed=1.0)
    assert moves.queues == {"mail": (6.5, 4.5)}, "4.5 left in a second, and it grew by 2"


def test_what_nobody_can_know_yet_is_not_told_as_nothing() -> None:
    pace = RateTracker()
    pace.record_interval(NOW, [], working_since=NOW - 3_000_000)
    moves = pace.measure(QueueSample(at=NOW, live={"mail": 7}))
    assert moves.rates == Rates(started=None, succeeded=None, failed=None), "its worker began after that stretch"
    assert moves.queues == {"mail": (None, None)}
    pace.record_interval(NOW, [counted(succeeded=40)], working_since=NOW - 3_000_000)
    assert pace.measure(QueueSample(at=NOW + 1, live={"mail": 7})).queues == {"mail": (None, 4.0)}, "nobody saw it grow"
    for working_since in (None, NOW - 3_600_000_000):
        pace.record_interval(NOW, [], working_since=working_since)
        assert pace.measure(QueueSample(at=NOW + 2, live={})).rates == Rates(started=0.0, succeeded=0.0, failed=0.0)


def test_looks_from_before_a_long_pause_say_nothing_about_now() -> None:
    pace = RateTracker()
    pace.record_interval(NOW, [counted(succeeded=40)], working_since=0)
    pace.measure(QueueSample(at=NOW - 30_000_000, live={"mail": 0}))
    assert pace.measure(QueueSample(at=NOW, live={"mail": 800})).queues == {"mail": (None, 4.0)}
