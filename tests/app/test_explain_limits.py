"""Why a job under limits is not running: every reason, found in a real store, on every engine."""

from collections.abc import AsyncIterator

import pytest

from drumbeat import Drumbeat
from drumbeat.admin import Reason, ReasonKind
from drumbeat.core.job import OutcomeKind
from drumbeat.core.limits import Bounds
from drumbeat.ids import InstanceId
from drumbeat.store.protocol import Store
from tests.contract.lanes import add_jobs, declare, finish, take
from tests.contract.making import HOUR, worker


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(store_url) as app:
        yield app


@pytest.fixture
async def store(app: Drumbeat) -> Store:
    return await app._internals.store()


@pytest.fixture
async def instance(store: Store) -> InstanceId:
    return await worker(store)


async def explained(app: Drumbeat, id: str) -> list[Reason]:
    return (await app.jobs.explain(id)).reasons


async def only(app: Drumbeat, id: str) -> Reason:
    [reason] = await explained(app, id)
    return reason


async def test_a_group_runs_as_many_as_it_may(app: Drumbeat, store: Store, instance: InstanceId) -> None:
    await declare(store, each=Bounds(2))
    ids = await add_jobs(store, "tenant:7", 5)
    await take(store, instance)
    reason = await only(app, ids[-1])
    assert reason.kind is ReasonKind.LIMIT
    assert reason.text == "group 'tenant:7' runs 2 of 2; ahead of it in its group: 2 jobs"
    assert reason.facts == {
        "queue": "default",
        "task": "greet",
        "group": "tenant:7",
        "limited": "group 'tenant:7'",
        "running": 2,
        "limit": 2,
        "before": 2,
    }
    assert (await only(app, ids[2])).text == "group 'tenant:7' runs 2 of 2"


async def test_the_whole_task_or_the_whole_queue_runs_as_many_as_it_may(
    app: Drumbeat, store: Store, instance: InstanceId
) -> None:
    await declare(store, each=Bounds(2), whole=Bounds(3))
    await declare(store, "", whole=Bounds(3))
    for group in ("a", "b"):
        await add_jobs(store, group, 2)
    await take(store, instance)
    [id] = await add_jobs(store, "c", 1)
    task, queue = await explained(app, id)
    assert (task.kind, task.text) == (ReasonKind.LIMIT, "task 'greet' in queue 'default' runs 3 of 3")
    assert (queue.kind, queue.text) == (ReasonKind.LIMIT, "queue 'default' runs 3 of 3")
    [id] = await add_jobs(store, "c", 1, line="", task="other")
    assert ReasonKind.LIMIT in [each.kind for each in await explained(app, id)]


async def test_a_rate_window_of_the_group_opens_at_a_time(app: Drumbeat, store: Store, instance: InstanceId) -> None:
    await declare(store, each=Bounds(None, 2, HOUR))
    ids = await add_jobs(store, "a", 3)
    await take(store, instance)
    reason = await only(app, ids[-1])
    assert reason.kind is ReasonKind.WINDOW
    assert reason.text.startswith("the rate window of group 'a' (2 per 1h) is full, and opens in 59m 5")
    assert (reason.facts["started"], reason.facts["rate"], reason.facts["per"]) == (2, 2, 3600.0)
    assert str(reason.facts["opens_at"]).endswith("Z")


async def test_a_rate_window_of_the_whole_task_opens_at_a_time(
    app: Drumbeat, store: Store, instance: InstanceId
) -> None:
    await declare(store, whole=Bounds(None, 2, HOUR))
    await add_jobs(store, "a", 2)
    await take(store, instance)
    [id] = await add_jobs(store, "b", 1)
    reason = await only(app, id)
    assert reason.kind is ReasonKind.WINDOW
    assert reason.text.startswith(
        "the rate window of task 'greet' in queue 'default' (2 per 1h) is full, and opens in 59m 5"
    )


async def test_a_line_that_was_never_declared_gives_nothing(app: Drumbeat, store: Store, instance: InstanceId) -> None:
    await declare(store, "other", each=Bounds(1))
    [id] = await add_jobs(store, "a", 1)
    assert await take(store, instance) == []
    reason = await only(app, id)
    assert reason.kind is ReasonKind.UNDECLARED
    assert reason.text.startswith(
        "the limits of task 'greet' in queue 'default' were never declared by a running worker"
    )
    [id] = await add_jobs(store, "a", 1, line="")
    assert "the limits of queue 'default' were never declared" in (await only(app, id)).text


async def test_jobs_of_its_group_are_ahead(app: Drumbeat, store: Store, instance: InstanceId) -> None:
    await declare(store, each=Bounds(5))
    await add_jobs(store, "b", 7)
    ids = await add_jobs(store, "a", 3)
    reason = await only(app, ids[-1])
    assert (reason.kind, reason.facts["before"], reason.facts["group"]) == (ReasonKind.JOBS_BEFORE, 2, "a")
    assert reason.text.startswith("2 jobs are before it in group 'a'; 0 of ")
    assert (await only(app, ids[0])).kind is ReasonKind.NEXT


async def test_an_order_runs_one_after_the_other(app: Drumbeat, store: Store, instance: InstanceId) -> None:
    await declare(store, order="skip")
    ids = await add_jobs(store, "a", 3)
    await take(store, instance)
    reason = await only(app, ids[-1])
    assert reason.kind is ReasonKind.ORDER
    assert reason.text == (
        "group 'a' runs one job after the other, and one of it runs now; ahead of it in its group: 1 job"
    )


async def test_an_earlier_job_holds_the_line_until_its_retry(app: Drumbeat, store: Store, instance: InstanceId) -> None:
    await declare(store, order="hold")
    ids = await add_jobs(store, "a", 2)
    [job] = await take(store, instance)
    await finish(store, instance, job, kind=OutcomeKind.RETRY, delay=HOUR)
    assert await take(store, instance) == []
    reason = await only(app, ids[1])
    assert reason.kind is ReasonKind.ORDER
    assert reason.text.startswith("an earlier job of group 'a' holds the line until its retry in 59m 5")
    assert (await only(app, ids[0])).kind is ReasonKind.RETRYING


async def test_a_job_without_a_group_is_told_of_as_such(app: Drumbeat, store: Store, instance: InstanceId) -> None:
    await declare(store, each=Bounds(1))
    ids = await add_jobs(store, "", 2)
    await take(store, instance)
    assert (await only(app, ids[1])).text == "the group of jobs without one runs 1 of 1"


async def test_a_job_that_is_not_due_or_has_no_worker_is_explained_by_that(
    app: Drumbeat, store: Store, instance: InstanceId
) -> None:
    await declare(store, each=Bounds(1))
    ids = await add_jobs(store, "a", 2)
    [later] = await add_jobs(store, "a", 1, delay=HOUR)
    await take(store, instance)
    assert [each.kind for each in await explained(app, later)] == [ReasonKind.NOT_DUE]
    await store.jobs.pause_queue("default", by="ada", reason="")
    assert [each.kind for each in await explained(app, ids[1])] == [ReasonKind.QUEUE_PAUSED, ReasonKind.LIMIT]
