"""`app.stats`: what workers counted."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.core.stats import BUCKETS, OVERALL, Resolution, Rollup, percentile
from drumbeat.durations import from_us
from drumbeat.errors import InvalidArguments
from drumbeat.sync_loop import SYNC_LOOP
from tests.contract import making

SECOND = 1_000_000


async def counted(
    app: Drumbeat, *, ago: int = 0, now: int | None = None, queue: str = "mail", task: str = "send"
) -> datetime:
    """Put one run into each resolution, in the stretch of so many seconds ago; when the one of 10 s began."""
    store = await app._internals.store()
    at = (now or await store.inspect.now()) - ago * SECOND
    rows = [
        Rollup(
            resolution=resolution,
            at=at // resolution * resolution if resolution else 0,
            queue=queue,
            task=task,
            succeeded=1,
        )
        for resolution in Resolution
    ]
    await store.stats.put(await making.worker(store), rows)
    return from_us(rows[1].at)


async def test_the_last_hour_is_read_in_stretches_of_10_s_and_the_last_day_in_minutes(app: Drumbeat) -> None:
    now = await (await app._internals.store()).inspect.now()
    for ago in (30, 30, 3_000, 4_000, 90_000):
        await counted(app, ago=ago, now=now)
    assert [each.succeeded for each in await app.stats.read()] == [1, 2]
    assert [each.succeeded for each in await app.stats.read(resolution="1m")] == [1, 1, 2]
    assert [each.succeeded for each in await app.stats.totals()] == [5]


async def test_all_queues_and_tasks_together_are_one_line_for_each_stretch(app: Drumbeat) -> None:
    now = await (await app._internals.store()).inspect.now()
    for ago in (30, 30, 4_000):
        await counted(app, ago=ago, now=now, queue=OVERALL, task=OVERALL)
    await counted(app, now=now)
    assert [(each.queue, each.task, each.succeeded) for each in await app.stats.overall()] == [("", "", 2)]
    assert [each.succeeded for each in await app.stats.overall(resolution="1m")] == [1, 2]
    assert [
        each.succeeded for each in await app.stats.overall(resolution="1m", until=from_us(now - 3_600 * SECOND))
    ] == [1]


async def test_a_span_a_queue_and_a_task_can_be_chosen(app: Drumbeat) -> None:
    at = await counted(app, ago=3_600, queue="a", task="x")
    await counted(app, ago=3_600, queue="b", task="x")
    await counted(app, ago=3_600, queue="b", task="y")
    span: dict[str, Any] = {"since": at - timedelta(seconds=10), "until": at + timedelta(seconds=30)}

    async def places(**wanted: Any) -> list[tuple[str, str]]:
        return [(each.queue, each.task) for each in await app.stats.read(**wanted)]

    assert await places(**span) == [("a", "x"), ("b", "x"), ("b", "y")]
    assert await places(**span, queue="b") == [("b", "x"), ("b", "y")]
    assert await places(**span, queue="b", task="y") == [("b", "y")]
    assert await places(since=at + timedelta(seconds=30)) == []


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"resolution": "1d"}, "resolution must be one of 10s, 1m, 1h, not '1d'"),
        ({"since": datetime(2026, 1, 1)}, "since must have a timezone"),
        ({"until": "today"}, "until must be a datetime with a timezone"),
        ({"queue": "a b"}, "queue 'a b' is not a valid name"),
        ({"task": ""}, "task '' is not a valid name"),
    ],
)
async def test_what_cannot_be_read_is_refused_in_words(app: Drumbeat, wanted: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArguments, match=words):
        await app.stats.read(**wanted)


def test_code_without_a_loop_reads_the_same(app_url: str) -> None:
    app = Drumbeat(app_url)
    SYNC_LOOP.run("a test", counted(app))
    assert [each.succeeded for each in app.sync.stats.read(resolution="1m")] == [1]
    assert [each.succeeded for each in app.sync.stats.totals()] == [1]
    app.sync.close()


def test_a_percentile_is_guessed_within_its_bucket() -> None:
    empty = [0] * BUCKETS
    assert percentile(empty, 0.5) is None
    halves = [10, 10, *empty[2:]]
    assert [percentile(halves, share) for share in (0.25, 0.5, 0.75, 1.0)] == [500, 1_000, 1_500, 2_000]
    beyond = [*empty[:-1], 1]
    assert percentile(beyond, 0.99) == 1_000 * 2**26
