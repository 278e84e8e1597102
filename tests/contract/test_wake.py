"""Hints: whoever makes something due is heard by listeners of other stores and of its own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from drumbeat.core.job import OutcomeKind
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from tests.conftest import OpenAgain
from tests.contract.graphs import add_child
from tests.contract.making import HOUR, add, claimed_one, dead_letter, end, hold, new_job, release, worker
from tests.waiting import until


class Ear:
    """Remembers what was heard."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def hear(self, run_at: int) -> None:
        self.heard.append(run_at)

    async def hears(self, run_at: int) -> None:
        await until(
            lambda: any(each <= run_at for each in self.heard), deadline=5, what=f"a hint of {run_at} or earlier"
        )


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[Ear]:
    ear = Ear()
    async with store.wake.listen(Subscriber(ear.hear)) as address:
        await worker(store, wake=address)
        yield ear


# Each event prepares, yields, makes something due, and yields the moment that must be heard.
Event = Callable[[Store], AsyncIterator[int]]


async def an_added_job(store: Store) -> AsyncIterator[int]:
    yield 0
    await add(store, new_job())
    yield await store.inspect.now()


async def a_future_job(store: Store) -> AsyncIterator[int]:
    yield 0
    moment = await store.inspect.now() + HOUR
    await add(store, new_job(run_at=moment))
    yield moment


async def a_released_job(store: Store) -> AsyncIterator[int]:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    yield 0
    await release(store, instance, hold(job))
    yield await store.inspect.now()


async def a_retried_job(store: Store) -> AsyncIterator[int]:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    yield 0
    await end(store, instance, job, OutcomeKind.RETRY)
    yield await store.inspect.now()


async def a_follow_up(store: Store) -> AsyncIterator[int]:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    yield 0
    await end(store, instance, job, OutcomeKind.DEAD, follow_up=new_job())
    yield await store.inspect.now()


async def a_replayed_job(store: Store) -> AsyncIterator[int]:
    instance = await worker(store)
    job = await dead_letter(store, instance)
    yield 0
    await store.jobs.replay([job.id])
    yield await store.inspect.now()


async def a_job_run_now(store: Store) -> AsyncIterator[int]:
    [id] = await add(store, new_job(delay=HOUR))
    yield 0
    await store.jobs.run_now([id])
    yield await store.inspect.now()


async def a_child_whose_parent_has_ended(store: Store) -> AsyncIterator[int]:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await add_child(store, job.id)
    yield 0
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    yield await store.inspect.now()


async def a_resumed_queue(store: Store) -> AsyncIterator[int]:
    await store.jobs.pause_queue("default", by="ada", reason="")
    yield 0
    await store.jobs.resume_queue("default")
    yield 0


async def a_declared_death(store: Store) -> AsyncIterator[int]:
    instance = await worker(store)
    await claimed_one(store, instance)
    yield 0
    await store.instances.declare_dead(instance, beat=None, started=None, reason="killed")
    yield await store.inspect.now()


async def a_goodbye(store: Store) -> AsyncIterator[int]:
    instance = await worker(store)
    await claimed_one(store, instance)
    yield 0
    await store.instances.deregister(instance, "deploy")
    yield await store.inspect.now()


EVENTS = [
    an_added_job,
    a_future_job,
    a_released_job,
    a_retried_job,
    a_follow_up,
    a_replayed_job,
    a_job_run_now,
    a_child_whose_parent_has_ended,
    a_resumed_queue,
    a_declared_death,
    a_goodbye,
]


async def heard_by(listener: Store, store: Store, event: Event) -> None:
    steps = event(store)
    await anext(steps)
    async with listening(listener) as ear:
        await ear.hears(await anext(steps))


@pytest.mark.parametrize("event", EVENTS)
async def test_listeners_of_other_stores_hear(store: Store, open_again: OpenAgain, event: Event) -> None:
    await heard_by(await open_again(), store, event)


@pytest.mark.parametrize("event", EVENTS)
async def test_listeners_of_the_same_store_hear(store: Store, event: Event) -> None:
    await heard_by(store, store, event)


async def test_every_listener_hears_and_none_after_it_has_stopped(store: Store, open_again: OpenAgain) -> None:
    other = await open_again()
    async with listening(other) as first:
        async with listening(other) as second:
            await add(store, new_job())
            now = await store.inspect.now()
            await first.hears(now)
            await second.hears(now)
        second.heard.clear()
        first.heard.clear()
        await add(store, new_job())
        await first.hears(await store.inspect.now())
        assert second.heard == []
