"""`app.limits`: lines and groups as people see and change them. On every engine."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from drumbeat import Drumbeat, Limit
from drumbeat.admin.limit_records import LimitRecord, describe_limits
from drumbeat.core.limits import Bounds
from drumbeat.errors import InvalidArguments
from drumbeat.store.protocol import Store
from tests.contract.lanes import add_jobs, declare, take
from tests.contract.making import worker

MINUTE = 60_000_000
FIVE = LimitRecord(concurrency=5, per_group=True)


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(store_url, name="shop") as app:
        yield app


@pytest.fixture
async def store(app: Drumbeat) -> Store:
    return await app._internals.store()


async def refusal(call: Any) -> str:
    with pytest.raises(InvalidArguments) as refused:
        await call
    return str(refused.value)


async def test_lines_are_listed_with_what_is_declared_in_seconds_and_names_of_tasks(
    app: Drumbeat, store: Store
) -> None:
    await declare(store, "", queue="mail", whole=Bounds(None, 100, MINUTE), fair=True, weights={"big": 3})
    await declare(store, each=Bounds(5), whole=Bounds(20), order="skip")
    task, queue = await app.limits.list()
    assert (task.queue, task.task, task.order, task.fair) == ("default", "greet", "skip", False)
    assert (task.running, task.started) == (0, None)
    assert task.limits == task.declared == [LimitRecord(concurrency=20), FIVE]
    assert (queue.queue, queue.task, queue.fair, queue.weights, queue.running) == ("mail", None, True, {"big": 3}, None)
    assert queue.limits == [LimitRecord(rate=100, per=60.0)]
    assert (queue.set_limits, queue.set_fair, queue.is_changed, queue.changed_by) == (None, None, False, None)
    assert [each.title for each in await app.limits.list("mail")] == ["queue mail"]
    assert describe_limits(task.limits + queue.limits) == "20 at once, 5 at once per group, 100 per 1m"


async def test_groups_are_listed_with_what_waits_and_runs_their_rate_and_their_lag(app: Drumbeat, store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(2, 2, 60 * MINUTE), fair=True, weights={"a": 3})
    await add_jobs(store, "a", 5, run_at=await store.inspect.now() - MINUTE)
    await add_jobs(store, "b", 1, delay=60 * MINUTE)
    await take(store, instance)
    a, b = await app.limits.groups("default", "greet")
    assert (a.group, a.waiting, a.running, a.weight, a.started, a.is_full) == ("a", 3, 2, 3, 2, True)
    assert (a.concurrency, a.rate) == (2, LimitRecord(rate=2, per=3600.0, per_group=True))
    assert 60 <= a.lag < 120 and a.due_at is not None
    assert a.opens_at is not None and a.opens_at - a.due_at > timedelta(hours=1)
    assert (b.waiting, b.running, b.lag, b.opens_at, b.is_full) == (1, 0, 0.0, None, False)
    assert (await app.limits.group("default", "greet", "a")).running == 2
    assert [each.group for each in await app.limits.groups("default", "greet", after="a", limit=1)] == ["b"]
    assert [each.group for each in await app.limits.busiest(limit=1)] == ["a"]


async def test_what_is_set_holds_until_it_is_reset_and_says_who_and_why(app: Drumbeat, store: Store) -> None:
    await declare(store, each=Bounds(1))
    changed = await app.limits.set(
        "default", "greet", limits=[FIVE, Limit(rate=9, per="2s")], reason="a calm day", by="ada"
    )
    assert changed.limits == changed.set_limits == [LimitRecord(rate=9, per=2.0), FIVE]
    assert (changed.declared, changed.fair, changed.set_fair) == (
        [LimitRecord(concurrency=1, per_group=True)],
        False,
        None,
    )
    assert (changed.changed_by, changed.reason, changed.changed_at is None) == ("ada", "a calm day", False)
    fair = await app.limits.set("default", "greet", fair=True)
    assert (fair.fair, fair.set_fair, fair.limits, fair.changed_by) == (True, True, changed.limits, "shop")
    assert (await app.limits.set("default", "greet", limits=[])).limits == []
    assert await app.limits.reset("default", "greet", reason="over")
    found = await app.limits.show("default", "greet")
    assert (found.limits, found.fair, found.is_changed, found.changed_by) == (found.declared, False, False, None)
    assert not await app.limits.reset("default", "greet")


async def test_a_group_may_be_an_exception_also_before_its_first_job(app: Drumbeat, store: Store) -> None:
    await declare(store, each=Bounds(1), fair=True)
    made = await app.limits.set_group("default", "greet", "big", limits=[LimitRecord(concurrency=9)])
    assert (made.limits, made.own_limits, made.weight, made.own_weight) == (
        [LimitRecord(concurrency=9, per_group=True)],
        [LimitRecord(concurrency=9, per_group=True)],
        1,
        None,
    )
    made = await app.limits.set_group("default", "greet", "big", weight=100)
    assert (made.concurrency, made.weight, made.own_weight) == (9, 100, 100)
    assert (await app.limits.set_group("default", "greet", "big", limits=[])).limits == []
    assert await app.limits.reset_group("default", "greet", "big")
    assert not await app.limits.reset_group("default", "greet", "big")
    assert not await app.limits.reset_group("default", "greet", "nobody")
    assert "has no jobs and no limits of its own in task greet in queue default" in await refusal(
        app.limits.group("default", "greet", "nobody")
    )


async def test_what_is_set_changes_what_is_claimed(app: Drumbeat, store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(1))
    await add_jobs(store, "a", 9)
    assert len(await take(store, instance)) == 1
    await app.limits.set("default", "greet", limits=[FIVE])
    assert len(await take(store, instance)) == 4
    await app.limits.set_group("default", "greet", "a", limits=[LimitRecord(concurrency=7)])
    assert len(await take(store, instance)) == 2


async def test_an_unknown_line_is_refused_with_those_that_exist(app: Drumbeat, store: Store) -> None:
    assert "none is declared; a worker declares" in await refusal(app.limits.show("default"))
    await declare(store, "", queue="mail", fair=True)
    await declare(store, "send", queue="mail", each=Bounds(1))
    expected = "there are queue mail, task send in queue mail"
    for call in (app.limits.show, app.limits.groups, app.limits.reset):
        assert (await refusal(call("mail", "sent"))).endswith(expected)
    with pytest.raises(InvalidArguments) as refused:
        await app.limits.set("male", limits=[FIVE])
    assert (str(refused.value), refused.value.argument) == (f"queue male has no limits; {expected}", "queue")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (
            [LimitRecord(concurrency=0)],
            "concurrency must be at least 1, not 0: to start none of its jobs, pause the queue",
        ),
        ([LimitRecord(rate=0, per=1)], "rate must be at least 1, not 0"),
        ([LimitRecord(rate=1_000_001, per=1)], "rate must be a whole number from 1 to 1000000"),
        ([LimitRecord(rate=5)], "rate needs per, the time in which so many may start"),
        ([LimitRecord(concurrency=5, per=5)], "per needs rate"),
        ([LimitRecord(rate=5, per=0.5)], 'per must be from "1s" to "1d", not 0.5'),
        ([LimitRecord(rate=5, per=86_401)], 'per must be from "1s" to "1d"'),
        ([LimitRecord()], "a Limit says what it limits"),
        ([FIVE, FIVE], "concurrency of each group is given twice"),
        ([LimitRecord(concurrency=5), LimitRecord(concurrency=6)], "concurrency of all jobs together is given twice"),
        ("5", "limits must be a list such as [Limit(concurrency=5)]"),
        ([5], "limits must contain Limit(...) only, not 5"),
        (None, "give limits, or fair"),
    ],
)
async def test_impossible_limits_are_refused_and_nothing_is_changed(
    app: Drumbeat, store: Store, limits: Any, reason: str
) -> None:
    await declare(store, each=Bounds(1))
    assert reason in await refusal(app.limits.set("default", "greet", limits=limits))
    assert not (await app.limits.show("default", "greet")).is_changed


async def test_impossible_exceptions_are_refused(app: Drumbeat, store: Store) -> None:
    await declare(store, order="hold")
    for facts, reason in (
        ({"weight": 0}, "weight must be a whole number from 1 to 100, not 0"),
        ({"weight": 101}, "weight must be a whole number from 1 to 100, not 101"),
        ({}, "give limits, or a weight"),
        ({"limits": [LimitRecord(concurrency=2)]}, "its jobs run in the order of enqueue"),
    ):
        assert reason in await refusal(app.limits.set_group("default", "greet", "a", **facts))
    assert "its jobs run in the order of enqueue" in await refusal(app.limits.set("default", "greet", limits=[FIVE]))
    assert "group 'xxx" in await refusal(app.limits.set_group("default", "greet", "x" * 201, weight=1))
    assert "reason must be at most 200" in await refusal(
        app.limits.set("default", "greet", fair=True, reason="x" * 201)
    )


async def test_a_rate_of_a_whole_line_tells_how_many_have_started_and_when_it_opens(
    app: Drumbeat, store: Store
) -> None:
    instance = await worker(store)
    await declare(store, whole=Bounds(None, 2, 60 * MINUTE))
    await add_jobs(store, "a", 5)
    await take(store, instance)
    line = await app.limits.show("default", "greet")
    assert line.started == 2
    assert line.opens_at is not None


def test_there_is_one_for_code_without_an_event_loop(tmp_path: Any) -> None:
    app = Drumbeat(f"sqlite:///{tmp_path}/sync.db")
    assert app.sync.limits.list() == []
    assert app.sync.limits.busiest() == []
