"""Turns: lines of tickets, leases, rate windows. What must end by itself has a lease that is over at the next step."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from drumbeat.core.lock import NewTicket, TicketState, TicketStatus
from drumbeat.core.turns import LockQueue
from drumbeat.durations import to_us
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from tests.conftest import ENGINES, OpenAgain, open_fresh
from tests.contract.conftest import NEWEST
from tests.contract.making import HOUR
from tests.waiting import until

WAITING, GRANTED, LOST = TicketState.WAITING, TicketState.GRANTED, TicketState.LOST
DOOMED = 1
"""A lease that has ended before the next step."""


def new_ticket(lock: str = "x", **options: Any) -> NewTicket:
    facts: dict[str, Any] = {"id": os.urandom(8).hex(), "lease": HOUR, "owner": "shop 1", "what": "test"}
    return NewTicket(lock=lock, **(facts | options))


async def enter(store: Store, lock: str = "x", **options: Any) -> TicketStatus:
    return await store.locks.acquire(new_ticket(lock, **options))


async def look(store: Store, *tickets: TicketStatus | str, renew: bool = False) -> list[TicketStatus]:
    return await store.locks.ticket_status(
        [each if isinstance(each, str) else each.ticket for each in tickets], renew=renew
    )


async def states(store: Store, *tickets: TicketStatus) -> list[TicketState]:
    return [seen.state for seen in await look(store, *tickets)]


async def leave(store: Store, *tickets: TicketStatus) -> None:
    await store.locks.release([each.ticket for each in tickets])


async def test_the_first_holds_and_the_others_stand_in_line(store: Store) -> None:
    seen = [await enter(store) for _ in range(3)]
    assert [each.state for each in seen] == [GRANTED, WAITING, WAITING]
    assert [each.position for each in seen] == [0, 1, 2]
    assert [each.ticket for each in seen] == [each.ticket for each in await look(store, *seen)]


async def test_tokens_only_grow_and_are_never_below_the_time_of_the_store(store: Store) -> None:
    before = await store.inspect.now()
    tokens = [(await enter(store, limit=100)).token for _ in range(5)]
    assert tokens == sorted(set(tokens)) and tokens[0] >= before


async def test_turns_are_given_in_the_order_of_coming(store: Store) -> None:
    seen = [await enter(store) for _ in range(4)]
    for number in range(3):
        await leave(store, seen[number])
        expected = [GRANTED] + [WAITING] * (2 - number)
        assert await states(store, *seen[number + 1 :]) == expected


async def test_a_repeated_enter_is_the_same_ticket(store: Store) -> None:
    ticket = new_ticket()
    first = await store.locks.acquire(ticket)
    behind = await enter(store)
    again = await store.locks.acquire(ticket)
    assert (again.state, again.token) == (GRANTED, first.token)
    await leave(store, first)
    assert await states(store, first, behind) == [LOST, GRANTED]


async def test_at_most_limit_hold_it_each_in_a_lane_of_its_own(store: Store) -> None:
    seen = [await enter(store, limit=3) for _ in range(5)]
    assert [each.state for each in seen] == [GRANTED] * 3 + [WAITING] * 2
    assert [each.lane for each in seen[:3]] == [0, 1, 2]
    await leave(store, seen[1])
    [next_one] = await look(store, seen[3])
    assert (next_one.state, next_one.lane) == (GRANTED, 1)
    assert next_one.token > seen[1].token


async def test_the_newest_limit_counts_and_lowering_revokes_nobody(store: Store) -> None:
    first, second = await enter(store, limit=2), await enter(store, limit=2)
    third = await enter(store, limit=1)
    assert await states(store, first, second, third) == [GRANTED, GRANTED, WAITING]
    await leave(store, first)
    assert await states(store, second, third) == [GRANTED, WAITING]
    fourth = await enter(store, limit=3)
    assert await states(store, third, fourth) == [GRANTED, GRANTED]


async def test_the_line_goes_on_without_those_who_leave_it(store: Store) -> None:
    holder, gone, next_one = [await enter(store) for _ in range(3)]
    await leave(store, gone)
    assert (await look(store, next_one))[0].position == 1
    await leave(store, holder)
    assert await states(store, gone, next_one) == [LOST, GRANTED]


async def test_locks_do_not_know_each_other(store: Store) -> None:
    first, other = await enter(store, "x"), await enter(store, "y")
    assert (first.state, other.state) == (GRANTED, GRANTED)


async def test_a_holder_whose_lease_has_ended_is_passed_over(store: Store) -> None:
    dead = await enter(store, lease=DOOMED)
    assert dead.state is GRANTED
    assert (await enter(store)).state is GRANTED
    assert await states(store, dead) == [LOST]


async def test_a_waiter_whose_lease_has_ended_is_never_granted(store: Store) -> None:
    holder = await enter(store)
    dead = await enter(store, lease=DOOMED)
    living = await enter(store)
    await leave(store, holder)
    assert await states(store, dead, living) == [LOST, GRANTED]


async def test_an_expired_ticket_cannot_be_renewed(store: Store) -> None:
    dead = await enter(store, lease=DOOMED)
    [seen] = await look(store, dead, renew=True)
    assert (seen.state, seen.reason) == (LOST, None)


async def test_renewing_keeps_a_ticket_alive(store: Store) -> None:
    lease = 300_000
    kept, behind = await enter(store, lease=lease), await enter(store)
    end = await store.inspect.now() + 3 * lease

    async def kept_so_long() -> bool:
        [seen] = await look(store, kept, renew=True)
        assert seen.state is GRANTED
        return await store.inspect.now() > end

    await until(kept_so_long)
    await until(lambda: _is_granted(store, behind), what="the end of the lease")


async def _is_granted(store: Store, ticket: TicketStatus) -> bool:
    return (await states(store, ticket)) == [GRANTED]


async def test_every_waiter_knows_when_the_next_lease_ahead_ends(store: Store) -> None:
    await enter(store, lease=HOUR)
    second = await enter(store, lease=HOUR // 2)
    third = await enter(store)
    seconds = [each.recheck_after_us for each in await look(store, second, third)]
    assert seconds[0] is not None and HOUR * 0.9 < seconds[0] <= HOUR
    assert seconds[1] is not None and HOUR * 0.4 < seconds[1] <= HOUR // 2


async def test_looking_at_the_told_moment_finds_the_lock_free(store: Store) -> None:
    await enter(store, lease=100_000)
    behind = await enter(store)
    assert behind.recheck_after_us is not None
    moment = await store.inspect.now() + behind.recheck_after_us

    async def is_late() -> bool:
        return await store.inspect.now() >= moment

    await until(is_late)
    assert await states(store, behind) == [GRANTED]


async def test_a_window_counts_grants_also_of_those_who_have_left(store: Store) -> None:
    for _ in range(2):
        await leave(store, await enter(store, limit=2, per=HOUR))
    third = await enter(store, limit=2, per=HOUR)
    assert (third.state, third.position) == (WAITING, 1)
    assert third.recheck_after_us is not None and HOUR * 0.9 < third.recheck_after_us <= HOUR


async def test_a_full_window_of_two_opens_when_the_first_of_them_leaves_it(store: Store) -> None:
    first = await enter(store, limit=2, per=HOUR)
    assert first.granted_at is not None
    later = first.granted_at + 50_000

    async def is_late() -> bool:
        return await store.inspect.now() > later

    await until(is_late)
    await leave(store, first, await enter(store, limit=2, per=HOUR))
    asked_at = await store.inspect.now()
    third = await enter(store, limit=2, per=HOUR)
    # On SQLite the window is measured by the boot clock: the same moment, asked twice, differs by microseconds.
    assert third.recheck_after_us is not None and third.recheck_after_us < first.granted_at + HOUR - asked_at + 10_000


async def test_a_window_opens_at_the_told_moment_and_not_before(store: Store) -> None:
    per = 200_000
    first = await enter(store, per=per)
    await leave(store, first)
    second = await enter(store, per=per)
    assert second.state is WAITING and first.granted_at is not None
    seen = await until(lambda: _granted(store, second), what="the window")
    assert seen.granted_at >= first.granted_at + per


async def _granted(store: Store, ticket: TicketStatus) -> TicketStatus | None:
    [seen] = await look(store, ticket)
    return seen if seen.state is GRANTED else None


async def test_holders_are_limited_as_well_as_starts(store: Store) -> None:
    first = await enter(store, limit=1, per=1_000)
    second = await enter(store, limit=1, per=1_000)
    end = await store.inspect.now() + 10_000

    async def is_late() -> bool:
        return await store.inspect.now() > end

    await until(is_late)
    assert await states(store, second) == [WAITING]
    await leave(store, first)
    assert await states(store, second) == [GRANTED]


async def test_no_window_has_more_than_limit_grants_however_many_stores_look(
    store: Store, open_again: OpenAgain
) -> None:
    limit, per, moments = 3, 100_000, list[int]()

    async def call(mine: Store) -> None:
        seen = await enter(mine, limit=limit, per=per)
        if seen.state is not GRANTED:
            seen = await until(lambda: _granted(mine, seen))
        assert seen.granted_at is not None
        moments.append(seen.granted_at)
        await leave(mine, seen)

    other = await open_again()
    async with asyncio.TaskGroup() as group:
        for number in range(16):
            group.create_task(call((store, other)[number % 2]))
    moments.sort()
    # SQLite reckons windows in boot time, and these moments in wall time.
    assert [pair for pair in zip(moments, moments[limit:], strict=False) if pair[1] - pair[0] < per - 500] == []


async def test_many_at_once_are_all_served_and_never_two_together(store: Store, open_again: OpenAgain) -> None:
    inside, tokens = 0, list[int]()

    async def work(mine: Store) -> None:
        nonlocal inside
        for _ in range(4):
            seen = await enter(mine)
            if seen.state is not GRANTED:
                seen = await until(lambda seen=seen: _granted(mine, seen))
            inside += 1
            assert inside == 1
            tokens.append(seen.token)
            await mine.inspect.now()
            inside -= 1
            await leave(mine, seen)

    stores = [store, await open_again(), await open_again()]
    async with asyncio.TaskGroup() as group:
        for number in range(9):
            group.create_task(work(stores[number % 3]))
    assert tokens == sorted(set(tokens)) and len(tokens) == 36


async def test_nothing_to_do_is_no_error(store: Store) -> None:
    assert await store.locks.ticket_status([], renew=True) == []
    await store.locks.release([])
    await store.locks.release(["unknown"])
    assert [seen.state for seen in await look(store, "unknown", renew=True)] == [LOST]


# Hints.


class Ear:
    def __init__(self) -> None:
        self.address: str | None = None
        self.heard: dict[str, int] = {}

    def hear(self, ticket: str, after: int) -> None:
        self.heard[ticket] = after

    async def hears(self, ticket: TicketStatus) -> int:
        await until(lambda: ticket.ticket in self.heard, what="a hint", deadline=5)
        return self.heard[ticket.ticket]


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[Ear]:
    ear = Ear()
    async with store.wake.listen(Subscriber(on_ticket=ear.hear)) as ear.address:
        yield ear


async def test_whoever_is_granted_by_another_hears_it(store: Store, open_again: OpenAgain) -> None:
    other = await open_again()
    async with listening(other) as ear:
        holder = await enter(store)
        next_one, last = await enter(other, wake=ear.address), await enter(other, wake=ear.address)
        await leave(store, holder)
        assert await ear.hears(next_one) == 0
        assert last.ticket not in ear.heard


async def test_a_ticket_is_heard_of_in_its_own_store_as_well(store: Store) -> None:
    async with listening(store) as ear:
        holder, next_one = await enter(store), await enter(store, wake=ear.address)
        await leave(store, holder)
        assert await ear.hears(next_one) == 0


async def test_whoever_comes_first_before_a_closed_window_hears_when_it_opens(store: Store) -> None:
    async with listening(store) as ear:
        await leave(store, await enter(store, per=HOUR))
        first = await enter(store, per=HOUR, wake=ear.address)
        second = await enter(store, per=HOUR, wake=ear.address)
        await leave(store, first)
        assert HOUR * 0.9 < await ear.hears(second) <= HOUR


async def test_whoever_has_stopped_listening_hears_nothing(store: Store) -> None:
    async with listening(store) as first:
        async with listening(store) as second:
            pass
        holder = await enter(store)
        next_one = await enter(store, wake=first.address)
        await leave(store, holder)
        await first.hears(next_one)
        assert second.heard == {}


# What people see and do.


async def test_a_lock_is_shown_with_its_line(store: Store) -> None:
    seen = [await enter(store, limit=2, per=HOUR, what=f"call {number}") for number in range(4)]
    found = await store.locks.get("x")
    assert found is not None
    assert (found.name, found.limit, found.per, found.holding, found.waiting) == ("x", 2, HOUR / 1e6, 2, 2)
    assert [ticket.id for ticket in found.holders] == [each.ticket for each in seen[:2]]
    assert [ticket.what for ticket in found.waiters] == ["call 2", "call 3"]
    assert [ticket.token for ticket in found.waiters] == [each.token for each in seen[2:]]
    assert found.holders[0].owner == "shop 1" and found.holders[0].granted_at is not None
    assert 3_500 < found.holders[0].lease_left <= 3_600
    assert await store.locks.get("unknown") is None


async def test_a_lock_tells_when_its_full_window_has_room_again(store: Store) -> None:
    first = await enter(store, limit=2, per=HOUR)
    one_left = await store.locks.get("x")
    await leave(store, first, await enter(store, limit=2, per=HOUR))
    assert (await enter(store, limit=2, per=HOUR)).state is WAITING
    full = await store.locks.get("x")
    assert one_left is not None and full is not None and full.opens_at is not None and first.granted_at is not None
    assert one_left.opens_at is None
    # On SQLite the window is measured by the boot clock: the same moment, asked twice, differs by microseconds.
    assert abs(to_us(full.opens_at) - (first.granted_at + HOUR)) < 10_000
    assert [lock.opens_at is None for lock in await store.locks.list_page()] == [False]


async def test_a_lock_without_a_window_tells_of_no_opening(store: Store) -> None:
    await enter(store)
    found = await store.locks.get("x")
    assert found is not None and (found.holding, found.opens_at) == (1, None)


async def test_locks_are_listed_by_name_page_by_page_without_idle_ones(store: Store) -> None:
    for name in ("c", "a", "b", "idle"):
        seen = await enter(store, name)
    await leave(store, seen)
    await enter(store, "a")
    page = await store.locks.list_page(limit=2)
    assert [(lock.name, lock.holding, lock.waiting) for lock in page] == [("a", 1, 1), ("b", 1, 0)]
    assert [lock.name for lock in await store.locks.list_page(after="b")] == ["c"]
    assert [lock.name for lock in await store.locks.list_page(all=True)] == ["a", "b", "c", "idle"]


async def test_the_dead_are_not_shown(store: Store) -> None:
    await enter(store, lease=DOOMED)
    assert await store.locks.list_page() == []
    found = await store.locks.get("x")
    assert found is not None and found.holders == []


async def test_a_release_by_force_gives_the_turn_to_the_next_and_tells_both(store: Store) -> None:
    async with listening(store) as ear:
        holder, next_one = await enter(store, wake=ear.address), await enter(store, wake=ear.address)
        assert await store.locks.force_release("x", None, by="ada", reason="stuck") == 1
        await ear.hears(holder)
        await ear.hears(next_one)
    lost, granted = await look(store, holder, next_one, renew=True)
    assert (lost.state, lost.reason) == (LOST, "released by ada: stuck")
    assert granted.state is GRANTED
    found = await store.locks.get("x")
    assert found is not None and (found.released_by, found.released_reason) == ("ada", "stuck")
    assert found.released_at is not None


async def test_one_ticket_can_be_released_by_force_and_unknown_ones_are_not(store: Store) -> None:
    holder, waiter = await enter(store), await enter(store)
    assert await store.locks.force_release("x", waiter.ticket, by="ada", reason="") == 1
    assert await store.locks.force_release("x", waiter.ticket, by="ada", reason="") == 0
    assert await store.locks.force_release("unknown", None, by="ada", reason="") == 0
    assert await states(store, holder, waiter) == [GRANTED, LOST]


class Tickets(RuleBasedStateMachine):
    """Two locks, random steps; after each the store and `core.turns` must say the same."""

    engine = ""
    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.locks = {"a": LockQueue(), "b": LockQueue()}
        self.doomed: set[str] = set()
        self.now = 0
        self.last_token = 0
        self.known = 0
        self.store: Store = self.run(open_fresh(self.engine, Path(self.folder.name)))

    def run(self, call: Any) -> Any:
        """The model's clock goes on with each call: leases are DOOMED or an hour, so it need not be the store's."""
        self.now += 10 * DOOMED
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    def check(self, lock: str, seen: TicketStatus) -> None:
        lane = seen.lane if seen.state is GRANTED else 0
        assert (seen.state, seen.position, lane) == self.locks[lock].status(seen.ticket)

    def locks_of(self, some: list[tuple[str, str]]) -> set[str]:
        """A call touches only the locks of tickets that are there."""
        return {lock for lock, id in some if id in self.locks[lock].leases}

    @rule(
        target=tickets,
        lock=st.sampled_from("ab"),
        limit=st.integers(1, 3),
        per=st.sampled_from([None, None, None, HOUR]),
        doomed=st.integers(0, 4).map(lambda number: number == 0),
    )
    def acquire(self, lock: str, limit: int, per: int | None, doomed: bool) -> tuple[str, str]:
        ticket = new_ticket(lock, limit=limit, per=per, lease=DOOMED if doomed else HOUR)
        seen = self.run(self.store.locks.acquire(ticket))
        self.locks[lock].acquire(ticket, self.now)
        if doomed:
            self.doomed.add(ticket.id)
        self.check(lock, seen)
        assert seen.token > self.last_token or lock != self.lock_of_last
        self.last_token, self.lock_of_last = seen.token, lock
        self.known += 1
        return lock, ticket.id

    lock_of_last = ""

    @precondition(lambda self: self.known > 0)
    @rule(some=st.lists(tickets, min_size=1, max_size=5), renew=st.booleans())
    def ticket_status(self, some: list[tuple[str, str]], renew: bool) -> None:
        seen = self.run(self.store.locks.ticket_status([id for _, id in some], renew=renew))
        for lock in self.locks_of(some):
            self.locks[lock].renew({id for _, id in some} if renew else (), self.now)
        for (lock, id), each in zip(some, seen, strict=True):
            assert each.ticket == id
            self.check(lock, each)

    @precondition(lambda self: self.known > 1)
    @rule(some=st.lists(consumes(tickets), min_size=1, max_size=2))
    def release(self, some: list[tuple[str, str]]) -> None:
        self.known -= len(some)
        self.run(self.store.locks.release([id for _, id in some]))
        for lock in self.locks_of(some):
            self.locks[lock].release({id for _, id in some}, self.now)

    @rule(lock=st.sampled_from("ab"))
    def force_release(self, lock: str) -> None:
        count = self.run(self.store.locks.force_release(lock, None, by="ada", reason=""))
        assert count == self.locks[lock].force_release(self.now)

    @invariant()
    def shown_as_in_the_model(self) -> None:
        for name, lock in self.locks.items():
            found = self.run(self.store.locks.get(name))
            alive = [ticket for ticket in lock.leases if ticket not in self.doomed]
            shown = [] if found is None else [ticket.id for ticket in found.holders + found.waiters]
            assert sorted(shown) == sorted(alive)
            waiters = [] if found is None else [ticket.id for ticket in found.waiters]
            assert waiters == [ticket for ticket in lock.waiting if ticket in alive]


def tickets_on(engine: str) -> Any:
    """The machine's test on one engine."""
    machine = type(f"TicketsOn{engine.title()}", (Tickets,), {"engine": engine})
    machine.TestCase.settings = settings(  # type: ignore[attr-defined]
        max_examples=300 if os.environ.get("DRUMBEAT_FULL") else 20 if engine in NEWEST else 8,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return machine.TestCase  # type: ignore[attr-defined]


for name in ENGINES:
    globals()[f"Test{name.title()}"] = tickets_on(name)
