"""Limits, order and turns with real workers: never more at once, or in a time, than is allowed, and nothing is left waiting."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from drumbeat import Call, Drumbeat, Limit, RetryLater, current_job
from drumbeat.core.job import JobState
from drumbeat.store.protocol import Store
from tests.waiting import until
from tests.worker.worker_harness import run_worker

NEVER = 600.0
"""Seconds between two polls of a worker that must not need any."""


class Rounds:
    """Handlers wait in `stay` until the test ends their round. Counts how many of a group run at once."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.peaks: defaultdict[str, int] = defaultdict(int)
        self.peak = 0
        self.done: list[str] = []
        self._end = asyncio.Event()

    async def stay(self, group: str) -> None:
        self.running[group] += 1
        self.peaks[group] = max(self.peaks[group], self.running[group])
        self.peak = max(self.peak, self.running.total())
        await self._end.wait()
        self.running[group] -= 1
        self.done.append(group)

    def end(self) -> None:
        self._end.set()
        self._end = asyncio.Event()

    async def finish(self, count: int) -> None:
        """End rounds until so many have been."""

        def end_round() -> bool:
            self.end()
            return len(self.done) >= count

        await until(end_round, deadline=30, what=f"{count} runs")


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


@pytest.fixture
def app(store_url: str) -> Drumbeat:
    return Drumbeat(store_url)


def limited_task(app: Drumbeat, rounds: Rounds, name: str = "send", **options: Any) -> Any:
    async def send(group: str) -> None:
        await rounds.stay(group)

    return app.task(name=name, group=lambda group: group, **options)(send)


async def succeeded(app: Drumbeat, count: int) -> None:
    async def is_reached() -> bool:
        return len(await app.jobs.list(state="succeeded", limit=200)) == count

    await until(is_reached, what=f"{count} jobs on record")


async def test_no_more_jobs_of_a_group_run_at_once_than_its_limit_in_two_workers(app: Drumbeat, rounds: Rounds) -> None:
    send = limited_task(app, rounds, limits=[Limit(concurrency=2, per_group=True)])
    async with app:
        await app.enqueue_many([send.bind(group) for group in "aaaaabbbbbccccc"])
        async with run_worker(app, poll=NEVER), run_worker(app, poll=NEVER):
            await until(lambda: rounds.running == {"a": 2, "b": 2, "c": 2}, what="two of each")
            await rounds.finish(15)
            await succeeded(app, 15)
    assert rounds.peaks == {"a": 2, "b": 2, "c": 2}


async def test_no_more_jobs_of_a_task_run_at_once_than_its_limit_over_all_groups(app: Drumbeat, rounds: Rounds) -> None:
    send = limited_task(app, rounds, limits=[Limit(concurrency=3)])
    async with app:
        await app.enqueue_many([send.bind(group) for group in "abcdefgh"])
        async with run_worker(app, poll=NEVER):
            await until(lambda: rounds.running.total() == 3, what="those that may run")
            await rounds.finish(8)
    assert rounds.peak == 3


async def test_no_more_jobs_start_in_any_time_than_the_rate_allows(app: Drumbeat) -> None:
    tokens: defaultdict[str, list[int]] = defaultdict(list)

    @app.task(group=lambda group: group, limits=[Limit(rate=3, per="1s", per_group=True)])
    async def call(group: str) -> None:
        tokens[group].append(current_job().token)

    async with app:
        await app.enqueue_many([call.bind(group) for group in "aaaaaaabbbbbbb"])
        async with run_worker(app, poll=NEVER):
            await until(lambda: sum(map(len, tokens.values())) == 14, deadline=30)
    for moments in tokens.values():
        moments.sort()
        assert all(later - earlier >= 1_000_000 for earlier, later in zip(moments, moments[3:], strict=False))
        assert moments[-1] - moments[0] < 8_000_000


@pytest.mark.parametrize("order", ["hold", "skip"])
async def test_jobs_of_a_group_run_in_order_and_a_retry_holds_the_line_or_is_stepped_over(
    app: Drumbeat, order: Any
) -> None:
    seen: list[tuple[str, int]] = []
    failed: set[str] = set()

    @app.task(order=order, group=lambda group, number: group)
    async def step(group: str, number: int) -> None:
        if number == 1 and group not in failed:
            failed.add(group)
            raise RetryLater(0.3)
        seen.append((group, number))

    async with app:
        for number in range(4):
            await app.enqueue_many([step.bind(group, number) for group in "ab"])
        async with run_worker(app):
            await until(lambda: len(seen) == 8)
    wanted = [0, 1, 2, 3] if order == "hold" else [0, 2, 3, 1]
    assert {group: [number for each, number in seen if each == group] for group in "ab"} == {"a": wanted, "b": wanted}


async def test_a_limit_of_a_queue_holds_over_its_tasks_and_theirs_below(app: Drumbeat, rounds: Rounds) -> None:
    app.queue("mail", limits=[Limit(concurrency=3), Limit(concurrency=2, per_group=True)])
    one = limited_task(app, rounds, "one", queue="mail")
    own = limited_task(app, rounds, "own", queue="mail", limits=[Limit(concurrency=1, per_group=True)])
    async with app:
        await app.enqueue_many([*(one.bind(group) for group in "aaaa"), *(own.bind(group) for group in "xxxx")])
        async with run_worker(app, poll=NEVER):
            await until(lambda: rounds.running == {"a": 2, "x": 1}, what="three")
            await rounds.finish(8)
    assert rounds.peaks == {"a": 2, "x": 1}


async def test_jobs_under_limits_are_claimed_for_free_slots_only(app: Drumbeat, store: Store, rounds: Rounds) -> None:
    send = limited_task(app, rounds, limits=[Limit(concurrency=50)])

    @app.task
    async def quick() -> None: ...

    async with app:
        await app.enqueue_many([quick.bind() for _ in range(300)])
        async with run_worker(app, concurrency=2, poll=NEVER):
            await succeeded_at_least(app, "quick", 300)
            await app.enqueue_many([send.bind("a") for _ in range(6)])
            await until(lambda: rounds.running["a"] == 2)
            [group] = await store.limits.list_groups("default", "send")
            assert (group.waiting, group.running) == (4, 2)
            async with run_worker(app, concurrency=3, poll=NEVER):
                await until(lambda: rounds.running["a"] == 5, what="the slots of the other worker")
                await rounds.finish(6)


async def succeeded_at_least(app: Drumbeat, task: str, count: int) -> None:
    async def is_reached() -> bool:
        return len(await app.jobs.list(task=task, state="succeeded", limit=count)) >= count

    await until(is_reached, deadline=30, what=f"{count} jobs of {task}")


async def test_a_slot_that_becomes_free_is_used_again_without_a_poll(app: Drumbeat, rounds: Rounds) -> None:
    send = limited_task(app, rounds, limits=[Limit(concurrency=1, per_group=True)])
    async with app:
        await app.enqueue_many([send.bind(group) for group in "aaabbbccc"])
        async with run_worker(app, concurrency=2, poll=NEVER):
            await rounds.finish(9)
    assert set(rounds.peaks.values()) == {1}


async def test_room_that_one_worker_makes_is_used_by_another_without_a_poll(app: Drumbeat, rounds: Rounds) -> None:
    send = limited_task(app, rounds, limits=[Limit(concurrency=1)])
    seen: set[str] = set()

    @app.task(limits=[Limit(concurrency=1)])
    async def which() -> None:
        seen.add(current_job().instance)

    async with app:
        await send.enqueue("a")
        async with run_worker(app, concurrency=1, poll=NEVER):
            await until(lambda: rounds.running["a"] == 1)
            async with run_worker(app, concurrency=1, poll=NEVER) as other:
                await until(lambda: other.is_started)
                await send.enqueue("b")
                await which.enqueue()
                await until(lambda: seen, what="the free worker")
                await rounds.finish(2)


async def test_plain_jobs_and_jobs_under_limits_do_not_starve_each_other(app: Drumbeat) -> None:
    order: list[str] = []

    @app.task
    async def plain() -> None:
        order.append("plain")

    @app.task(limits=[Limit(concurrency=2)])
    async def limited() -> None:
        order.append("limited")

    async with app:
        await app.enqueue_many([plain.bind() for _ in range(3_000)])
        await app.enqueue_many([limited.bind() for _ in range(60)])
        async with run_worker(app, concurrency=4, batch=50, poll=NEVER):
            await until(lambda: len(order) == 3_060, deadline=60)
    last = max(at for at, name in enumerate(order) if name == "limited")
    assert last < 2_000, "the flood of plain jobs does not delay them all"
    assert order[:last].count("plain") >= 20, "nor do they keep the slots for themselves"


async def test_jobs_that_waited_when_a_deploy_adds_a_policy_stand_under_it(store_url: str, rounds: Rounds) -> None:
    before, after = Drumbeat(store_url), Drumbeat(store_url)

    @before.task(name="send")
    async def old(group: str) -> None: ...

    limited_task(after, rounds, limits=[Limit(concurrency=2, per_group=True)])
    async with before, after:
        jobs = await before.enqueue_many([old.bind(group) for group in "aaaaabbbbb"])
        async with run_worker(after, poll=NEVER):
            await until(lambda: rounds.running == {"a": 2, "b": 2}, what="two of each")
            await rounds.finish(10)
            await succeeded(after, 10)
        records = [await after.jobs.show(job.id) for job in jobs]
    assert rounds.peaks == {"a": 2, "b": 2}
    assert {(job.group, job.lane, job.attempts, job.crashes) for job in records} == {
        ("a", "send a", 1, 0),
        ("b", "send b", 1, 0),
    }


async def test_a_deploy_that_takes_a_policy_away_frees_what_waits_under_it(store_url: str, rounds: Rounds) -> None:
    before, after = Drumbeat(store_url), Drumbeat(store_url)
    old = limited_task(before, rounds, limits=[Limit(concurrency=1)])
    limited_task(after, rounds)
    async with before, after:
        await before.enqueue_many([old.bind(group) for group in "aaabbb"])
        async with run_worker(before, poll=NEVER):
            await until(lambda: rounds.running.total() == 1)
            async with run_worker(after, poll=NEVER):
                await until(lambda: rounds.running.total() == 6, what="all of them at once")
                await rounds.finish(6)


async def test_of_two_versions_with_different_policies_the_newer_holds_and_no_job_goes_to_and_fro(
    store_url: str, store: Store, rounds: Rounds
) -> None:
    old, new = Drumbeat(store_url, version="1.9"), Drumbeat(store_url, version="1.10")
    limited_task(old, rounds, limits=[Limit(concurrency=5)])
    send = limited_task(new, rounds, limits=[Limit(concurrency=2)])
    async with old, new:
        async with run_worker(new) as one:
            await until(lambda: one.is_started)
            async with run_worker(old) as other:
                await until(lambda: other.is_started)
                await new.enqueue_many([send.bind("a") for _ in range(6)])
                await until(lambda: rounds.running["a"] == 2)
                await rounds.finish(6)
        [line] = await store.limits.list_lines()
    assert rounds.peaks["a"] == 2
    assert line.declared.whole.concurrency == 2


async def test_the_on_dead_job_of_a_job_under_limits_stands_under_those_of_its_queue(
    app: Drumbeat, store: Store
) -> None:
    app.queue("mail", limits=[Limit(concurrency=5, per_group=True)])
    told: list[tuple[str, str]] = []

    def note(kind: str) -> Callable[..., Any]:
        async def told_of(job: Any, error: Any) -> None:
            told.append((kind, (await store.inspect.get_jobs([current_job().id]))[current_job().id].lane))

        return told_of

    @app.task(queue="mail", group="a", retries=0, on_dead=note("queue"))
    async def of_queue() -> None:
        raise ValueError

    @app.task(queue="mail", group="b", retries=0, limits=[Limit(concurrency=1)], on_dead=note("task"))
    async def of_task() -> None:
        raise ValueError

    async with app:
        await of_queue.enqueue()
        await of_task.enqueue()
        async with run_worker(app):
            await until(lambda: len(told) == 2)
    assert sorted(told) == [("queue", " a"), ("task", " b")]


async def test_batches_count_each_of_their_jobs(app: Drumbeat, store: Store) -> None:
    sizes: list[int] = []

    @app.task(batch=10, limits=[Limit(concurrency=3)])
    async def send(calls: list[Call[int]]) -> None:
        sizes.append(len(calls))

    async with app:
        await app.enqueue_many([send.bind(number) for number in range(20)])
        async with run_worker(app, concurrency=8, poll=NEVER):
            await until(lambda: sum(sizes) == 20)
    assert max(sizes) <= 3


async def test_jobs_of_groups_that_take_turns_are_prefetched_and_a_flood_delays_no_other(app: Drumbeat) -> None:
    app.queue("default", fair=True, weights={"vip": 3})
    order: list[str] = []

    @app.task(group=lambda group: group)
    async def work(group: str) -> None:
        order.append(group)

    async with app:
        await app.enqueue_many([work.bind("flood") for _ in range(2_000)])
        await app.enqueue_many([work.bind(group) for group in ["small"] * 5 + ["vip"] * 15])
        async with run_worker(app, concurrency=2, batch=20, poll=NEVER):
            await until(lambda: len(order) == 2_020, deadline=60)
    assert max(at for at, group in enumerate(order) if group != "flood") < 60


async def test_a_dead_letter_of_a_lane_keeps_its_group(app: Drumbeat) -> None:
    @app.task(retries=0, group="a", limits=[Limit(concurrency=1)])
    async def fail() -> None:
        raise ValueError

    async with app:
        job = await fail.enqueue()
        async with run_worker(app):

            async def is_dead() -> bool:
                return (await app.jobs.show(job.id)).state is JobState.DEAD

            await until(is_dead)
        record = await app.jobs.show(job.id)
    assert (record.group, record.lane) == ("a", "fail a")
