"""Messages to processes: an inbox for each instance, given at most once; and the hint that something came."""

import asyncio
from typing import Any

from drumbeat.core.room import MAX_HINT_NAMES, RoomMessage
from drumbeat.ids import InstanceId, new_instance_id, new_job_id
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from tests.conftest import OpenAgain
from tests.contract.making import HOUR, worker
from tests.waiting import until

ONE, TWO = InstanceId("1" * 16), InstanceId("2" * 16)
LARGE = '{"text":"' + "ü" * 200_000 + '\\n"}'


def message(to: InstanceId = ONE, **options: Any) -> RoomMessage:
    facts: dict[str, Any] = {"id": new_job_id(), "room": "refresh", "args": '{"a":1}', "signature": "s1"}
    return RoomMessage(to=to, **(facts | options))


async def test_each_takes_what_is_its_own_in_the_order_it_was_sent(store: Store, open_again: OpenAgain) -> None:
    mine, yours = [message(ONE, room=f"r{number}") for number in range(3)], message(TWO)
    await store.rooms.send([mine[0], yours, mine[1]])
    await store.rooms.send([mine[2]])
    other = await open_again()
    assert await other.rooms.take(ONE, 10) == mine
    assert await other.rooms.take(TWO, 10) == [yours]


async def test_a_message_is_given_once(store: Store, open_again: OpenAgain) -> None:
    sent = [message() for _ in range(20)]
    await store.rooms.send(sent)
    other = await open_again()
    async with asyncio.TaskGroup() as group:
        takers = [group.create_task(each.rooms.take(ONE, 7)) for _ in range(4) for each in (store, other)]
    taken = [each.id for taker in takers for each in taker.result()]
    taken += [each.id for each in await store.rooms.take(ONE, 20)]
    assert sorted(taken) == [each.id for each in sent]


async def test_no_more_are_taken_than_were_asked_for(store: Store) -> None:
    sent = [message() for _ in range(3)]
    await store.rooms.send(sent)
    assert [await store.rooms.take(ONE, 2), await store.rooms.take(ONE, 2)] == [sent[:2], sent[2:]]
    assert await store.rooms.take(ONE, 2) == []


async def test_a_message_that_is_sent_again_is_still_there(store: Store) -> None:
    sent = message()
    await store.rooms.send([sent])
    await store.rooms.send([sent])
    assert {each.id for each in await store.rooms.take(ONE, 10)} == {sent.id}


async def test_a_message_may_be_as_large_as_a_job(store: Store) -> None:
    sent = [message(to, args=LARGE) for to in (ONE, TWO)]
    await store.rooms.send(sent)
    assert await store.rooms.take(ONE, 10) + await store.rooms.take(TWO, 10) == sent


async def test_sending_nothing_does_nothing(store: Store) -> None:
    await store.rooms.send([])
    assert await store.rooms.take(ONE, 10) == []


async def test_who_sent_a_message_sees_whether_it_was_taken_and_can_withdraw_it_until_then(
    store: Store, open_again: OpenAgain
) -> None:
    other = await open_again()
    foreign = message(ONE)
    mine, yours = [message(ONE, room=f"r{number}") for number in range(3)], [message(TWO) for _ in range(2)]
    await store.rooms.send([foreign, *mine, *yours])
    every = [*mine, *yours]
    assert sorted(await other.rooms.list_untaken(every)) == sorted(each.id for each in every)
    assert await other.rooms.take(ONE, 2) == [foreign, mine[0]]
    left = [*mine[1:], *yours]
    assert sorted(await store.rooms.list_untaken(every)) == sorted(each.id for each in left)
    assert sorted(await store.rooms.withdraw([mine[0], mine[1], yours[0]])) == sorted([mine[1].id, yours[0].id])
    assert await store.rooms.withdraw([mine[1]]) == await store.rooms.list_untaken([mine[1]]) == []
    assert await other.rooms.take(ONE, 10) == [mine[2]]
    assert await other.rooms.take(TWO, 10) == [yours[1]]
    assert await store.rooms.list_untaken(every) == []


async def test_a_message_is_either_taken_or_withdrawn(store: Store, open_again: OpenAgain) -> None:
    sent = [message() for _ in range(20)]
    await store.rooms.send(sent)
    other = await open_again()
    async with asyncio.TaskGroup() as group:
        takers = [group.create_task(other.rooms.take(ONE, 2)) for _ in range(5)]
        drawers = [group.create_task(store.rooms.withdraw(sent[at : at + 4])) for at in range(0, 20, 4)]
    taken = [each.id for taker in takers for each in taker.result()]
    withdrawn = [id for drawer in drawers for id in drawer.result()]
    left = [each.id for each in await store.rooms.take(ONE, 20)]
    assert sorted(taken + withdrawn + left) == sorted(each.id for each in sent)


async def test_old_messages_are_pruned_but_not_from_the_inboxes_that_are_named(store: Store) -> None:
    kept, gone = message(ONE), [message(TWO) for _ in range(3)]
    await store.rooms.send([kept, *gone])
    assert await store.rooms.prune(HOUR, 10) == 0
    assert await store.rooms.prune(0, 2, exclude=[ONE]) == 2
    assert await store.rooms.prune(0, 10, exclude=[ONE]) == 1
    assert await store.rooms.take(TWO, 10) == []
    assert await store.rooms.take(ONE, 10) == [kept]
    await store.rooms.send([message(ONE)])
    assert await store.rooms.prune(0, 10) == 1


async def test_the_owner_of_an_inbox_hears_that_something_came(store: Store, open_again: OpenAgain) -> None:
    other = await open_again()
    heard: set[str] = set()
    async with (
        store.wake.listen(Subscriber(lambda _due: None)) as address,
        store.wake.listen(Subscriber(on_room=heard.add)),
    ):
        me = await worker(store, wake=address)
        await other.rooms.send([message(me)])
        await until(lambda: heard & {me, ""}, what="a hint")
        heard.clear()
        await other.rooms.send([message(me), *(message(new_instance_id()) for _ in range(MAX_HINT_NAMES))])
        await until(lambda: heard & {me, ""}, what="a hint for very many")


async def test_who_stops_listening_hears_no_more(store: Store) -> None:
    early: list[str] = []
    late: list[str] = []
    async with store.wake.listen(Subscriber(lambda _due: None)) as address:
        me = await worker(store, wake=address)
        async with store.wake.listen(Subscriber(on_room=early.append)):
            await store.rooms.send([message(me)])
            await until(lambda: early, what="a hint")
        early.clear()
        async with store.wake.listen(Subscriber(on_room=late.append)):
            await store.rooms.send([message(me)])
            await until(lambda: late, what="a hint")
    assert early == []


async def test_an_instance_is_in_its_rooms_until_it_leaves_them(store: Store) -> None:
    me = await worker(store, rooms={"refresh": "s1"})
    await worker(store)
    found = await store.inspect.list_instances()
    assert sorted((each.rooms for each in found), key=len) == [{}, {"refresh": "s1"}]
    assert all(each.tasks == {"greet": "s1"} for each in found)
    for _ in range(2):
        await store.instances.leave_rooms(me)
    assert [each.rooms for each in await store.inspect.list_instances()] == [{}, {}]
