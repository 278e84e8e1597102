"""Who leads: one at a time, by a lease; nothing depends on it, and it is never nobody's for long."""

import asyncio

import pytest

from drumbeat.core.instance import Leader
from drumbeat.core.schedule import ScheduleState
from drumbeat.ids import InstanceId, new_instance_id
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.contract.making import worker
from tests.contract.scheduling import change, fire, got, new_schedule, put
from tests.waiting import until

LEASE = 10_000_000


async def leader(store: Store, id: InstanceId, lead: int | None = LEASE) -> Leader | None:
    return (await store.instances.heartbeat(id, 0, lead=lead)).leader


async def test_who_does_not_ask_does_not_lead(store: Store) -> None:
    assert (await store.instances.heartbeat(await worker(store), 0)).leader is None


async def test_the_first_who_asks_leads_and_goes_on_leading(store: Store) -> None:
    one, two = await worker(store), await worker(store)
    first = await leader(store, one)
    assert first is not None
    assert first.instance == one
    assert await leader(store, two) == first
    assert await leader(store, one) == first
    assert await leader(store, two, None) == first


async def test_who_no_longer_asks_gives_up_and_the_term_grows(store: Store) -> None:
    one, two = await worker(store), await worker(store)
    first = await leader(store, one)
    assert await leader(store, one, None) is None
    assert first is not None
    assert await leader(store, two) == Leader(instance=two, term=first.term + 1)
    assert await leader(store, two, None) is None
    assert await leader(store, one) == Leader(instance=one, term=first.term + 2)


@pytest.mark.parametrize("how", ["leave", "declare_dead"])
async def test_who_goes_leaves_the_lead_to_the_next(store: Store, how: str) -> None:
    one, two = await worker(store), await worker(store)
    first = await leader(store, one)
    if how == "leave":
        await store.instances.deregister(one, "left")
    else:
        await store.instances.declare_dead(one, beat=None, started=None, reason="test")
    assert first is not None
    assert await leader(store, two) == Leader(instance=two, term=first.term + 1)


async def test_a_lease_that_has_run_out_is_anybodys(store: Store) -> None:
    one, two = await worker(store), await worker(store)
    first = await leader(store, one, 1)
    ends = await store.inspect.now()

    async def is_over() -> bool:
        return await store.inspect.now() > ends + 1

    await until(is_over)
    assert first is None or first.instance == one
    second = await leader(store, two)
    assert second is not None
    assert second.instance == two


async def test_a_lease_that_ends_later_than_any_could_is_anybodys(store: Store) -> None:
    """As after a step back of the store's clock."""
    one, two = await worker(store), await worker(store)
    first = await leader(store, one, 1_000 * LEASE)
    assert first is not None
    assert await leader(store, two) == Leader(instance=two, term=first.term + 1)


async def test_an_instance_that_is_not_alive_takes_nothing(store: Store) -> None:
    one, gone = await worker(store), await worker(store)
    await store.instances.deregister(gone, "left")
    for id in (gone, new_instance_id()):
        pulse = await store.instances.heartbeat(id, 0, lead=LEASE)
        assert (pulse.alive, pulse.leader) == (False, None)
    assert (await store.instances.heartbeat(one, 0)).leader is None


async def test_of_many_who_ask_at_once_one_leads(store: Store, open_again: OpenAgain) -> None:
    stores = [store, await open_again(), await open_again()]
    instances = [(each, await worker(each)) for each in stores for _ in range(4)]
    for _ in range(5):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(leader(each, id)) for each, id in instances]
        [only] = {task.result() for task in tasks}
        assert only is not None
        assert only.instance in {id for _, id in instances}


async def test_a_beat_tells_the_first_moment_of_all_active_schedules(store: Store) -> None:
    one = await worker(store)
    assert (await store.instances.heartbeat(one, 0)).next_fire_at is None
    await put(store, new_schedule("a"), next_at=20)
    await put(store, new_schedule("b"), next_at=10)
    assert (await store.instances.heartbeat(one, 0)).next_fire_at == 10
    await fire(store, "b", 10, next_at=40)
    assert (await store.instances.heartbeat(one, 0)).next_fire_at == 20
    await change(store, await got(store, "a"), ScheduleState.PAUSED)
    assert (await store.instances.heartbeat(one, 0)).next_fire_at == 40
