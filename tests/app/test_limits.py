"""Groups and lanes reach the store with every way of enqueueing, and what is refused is refused before anything is stored."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Call, Drumbeat, Limit
from drumbeat.errors import InvalidArguments
from drumbeat.testing import Kit
from tests.waiting import until
from tests.worker.worker_harness import run_worker

FIVE = [Limit(concurrency=5, per_group=True)]


async def places(app: Drumbeat) -> list[tuple[str, str]]:
    return sorted((job.group, job.lane) for job in await app.jobs.list(limit=100))


def sending(app: Drumbeat, **options: Any) -> Any:
    async def send(tenant: str) -> str:
        return tenant

    given: dict[str, Any] = {"limits": FIVE, "group": lambda tenant: f"tenant:{tenant}"} | options
    return app.task(**given)(send)


async def test_jobs_have_their_group_and_lane_however_they_are_enqueued(app: Drumbeat) -> None:
    send = sending(app)
    await send.enqueue("1")
    await app.enqueue_many([send.bind("2"), send.using(group="mine").bind("3")])
    await app.jobs.enqueue("send", {"tenant": "4"})
    await app.jobs.enqueue("send", {"tenant": "5"}, group="by-hand")
    found = ["by-hand", "mine", "tenant:1", "tenant:2", "tenant:4"]
    assert await places(app) == [(group, f"send {group}") for group in found]


async def test_jobs_of_a_workflow_and_of_a_map_have_them_too(app: Drumbeat) -> None:
    send = sending(app)
    flow = app.workflow("w")
    first = flow.add(send.bind("1"))
    flow.add(send.using(group="second").bind(first.result))
    flow.add(send.map(["2", "3"]))
    await flow.enqueue()
    assert [lane for _, lane in await places(app)] == [
        "send second",
        "send tenant:1",
        "send tenant:2",
        "send tenant:3",
    ]


async def test_a_group_cannot_be_computed_of_a_result_that_is_not_there_yet(app: Drumbeat) -> None:
    send = sending(app, group=lambda tenant: tenant.upper())
    first = app.workflow("w").add(send.bind("a"))
    with pytest.raises(InvalidArguments, match=r"its group= cannot be computed") as refused:
        send.bind(first.result)
    assert refused.value.argument == "group"


def test_calls_without_a_loop_take_groups(tmp_path: Path) -> None:
    app = Drumbeat(f"sqlite:///{tmp_path}/jobs.db")
    send = sending(app)
    send.enqueue_sync("1")
    send.using(group="mine").enqueue_sync("2")
    app.sync.enqueue_many([send.bind("3")])
    app.sync.jobs.enqueue("send", {"tenant": "4"}, group="by-hand")
    found = sorted(job.lane for job in app.sync.jobs.list(limit=10))
    assert found == ["send by-hand", "send mine", "send tenant:1", "send tenant:3"]
    app.sync.close()


async def test_jobs_of_the_programs_own_transaction_have_them(tmp_path: Path) -> None:
    async with Drumbeat(f"sqlite:///{tmp_path}/jobs.db") as app:
        send = sending(app)
        await app.jobs.list()  # makes the tables
        with sqlite3.connect(tmp_path / "jobs.db") as conn:
            await send.using(conn=conn).enqueue("1")
            await app.enqueue_many([send.bind("2")], conn=conn)
        conn.close()
        assert await places(app) == [("tenant:1", "send tenant:1"), ("tenant:2", "send tenant:2")]
        async with run_worker(app):

            async def are_done() -> bool:
                return len(await app.jobs.list(state="succeeded")) == 2

            await until(are_done, what="both")


async def test_jobs_that_came_through_an_outbox_have_them(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "shop.db").close()
    app = Drumbeat(f"sqlite:///{tmp_path}/jobs.db", outbox=f"sqlite:///{tmp_path}/shop.db")
    send = sending(app)
    async with app:
        await app._internals.outbox._app.jobs.list()  # type: ignore[union-attr]
        with sqlite3.connect(tmp_path / "shop.db") as conn:
            await send.using(conn=conn).enqueue("1")
        conn.close()
        async with run_worker(app):
            await until(lambda: places(app), what="its delivery")
        assert await places(app) == [("tenant:1", "send tenant:1")]


async def test_what_is_refused_leaves_nothing(app: Drumbeat) -> None:
    send = sending(app, group=lambda tenant: tenant)
    with pytest.raises(InvalidArguments):
        await send.enqueue("")
    with pytest.raises(InvalidArguments):
        await app.enqueue_many([send.bind("a"), send.bind("x" * 201)])
    with pytest.raises(InvalidArguments):
        await app.jobs.enqueue("send", {"tenant": "a"}, group="\n")
    assert await places(app) == []


async def test_a_schedule_that_moves_to_another_queue_leaves_its_lane(app: Drumbeat) -> None:
    app.queue("default", fair=True)
    app.task(name="other", queue="mail")(plain)
    app.task(group="a")(plain)
    await app.schedules.create("plain", name="nightly", every="1h")
    before = (await app._internals.schedules._find("nightly")).definition
    await app.schedules.change("nightly", queue="mail")
    after = (await app._internals.schedules._find("nightly")).definition
    assert (before.group, before.lane, after.queue, after.lane) == ("a", " a", "mail", "")


async def plain() -> None: ...


async def test_the_testing_kit_keeps_limits_in_its_own_time() -> None:
    app = Drumbeat()
    started: list[int] = []

    @app.task(group=lambda tenant: tenant, limits=[Limit(rate=2, per="1h", per_group=True)])
    async def call(tenant: str) -> None:
        started.append(kit.clock.now_us())

    @app.task(order=True, group="a", retries=3, backoff=[60])
    async def step(number: int) -> None:
        if number == 0 and len(steps) < 2:
            steps.append(-1)
            raise ValueError
        steps.append(number)

    steps: list[int] = []
    async with Kit(app) as kit:
        await app.enqueue_many([call.bind("a") for _ in range(5)])
        await app.enqueue_many([step.bind(0), step.bind(1)])
        await kit.run_until_idle()
        assert (len(started), steps) == (2, [-1])
        await kit.advance("2h")
    first = started[0]
    assert [(at - first) // 3_600_000_000 for at in started] == [0, 0, 1, 1, 2]
    assert steps == [-1, -1, 0, 1]


async def test_the_testing_kit_runs_batches_under_limits() -> None:
    app = Drumbeat()
    sizes: list[int] = []

    @app.task(batch=10, limits=[Limit(concurrency=2)])
    async def send(calls: list[Call[int]]) -> None:
        sizes.append(len(calls))

    async with Kit(app) as kit:
        await app.enqueue_many([send.bind(number) for number in range(6)])
        await kit.run_until_idle()
    assert sum(sizes) == 6 and max(sizes) <= 2
