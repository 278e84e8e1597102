"""Where a worker's heart beats, locks are kept beside it: no thread and no connection of their own, while the worker lives."""

import asyncio
import threading

import pytest

from drumbeat import Drumbeat
from drumbeat.store.protocol.wake import Subscriber
from tests.locks.conftest import QUICK_LEASES
from tests.locks.test_global import Holder, waits
from tests.waiting import until
from tests.worker.worker_harness import run_worker


def threads() -> int:
    return sum(thread.name == "drumbeat locks" for thread in threading.enumerate())


async def is_renewed(held: Holder) -> None:
    """Beyond the lease that it had."""
    end = held.lock._ticket.trusted_until
    await until(
        lambda: held.lock._ticket.trusted_until > end + QUICK_LEASES["lock_lease"], what="renewals", deadline=20
    )
    assert not held.lock.lost.is_set()


async def test_a_worker_renews_locks_beside_its_heart(app_url: str, other: Drumbeat) -> None:
    async with Drumbeat(app_url, **QUICK_LEASES) as app, run_worker(app, **QUICK_LEASES):
        await until(lambda: app._internals.keeper._host is not None)
        held = Holder(app)
        await held.holds()
        assert threads() == 0
        await is_renewed(held)
        waiter = Holder(other)
        await waits(other, 1)
        assert await held.end() < await _ended(waiter)


async def test_locks_that_come_again_and_again_find_their_place(app_url: str) -> None:
    async with Drumbeat(app_url, **QUICK_LEASES) as app, run_worker(app, **QUICK_LEASES):
        await until(lambda: app._internals.keeper._host is not None)
        for _ in range(5):
            held = Holder(app)
            await held.holds()
            await held.end()
            await app._internals.keeper.close()  # as after some idle seconds
            assert (app._internals.keeper._renewer, threads()) == (None, 0)


async def test_what_is_held_or_wanted_when_the_worker_ends_goes_on_in_a_thread(app_url: str, other: Drumbeat) -> None:
    async with Drumbeat(app_url, **QUICK_LEASES) as app:
        async with run_worker(app, **QUICK_LEASES, drain=0.01):
            await until(lambda: app._internals.keeper._host is not None)
            held, blocker = Holder(app), Holder(other, "y")
            await held.holds()
            await blocker.holds()
            waiter = Holder(app, "y")
            await waits(other, 1, "y")
        assert threads() == 2  # ours, and that of the other program
        await is_renewed(held)
        await held.end()
        assert await blocker.end() < await _ended(waiter)


async def test_a_worker_that_ends_while_nothing_is_held_leaves_no_thread(app_url: str) -> None:
    async with Drumbeat(app_url, **QUICK_LEASES) as app:
        async with run_worker(app, **QUICK_LEASES):
            await until(lambda: app._internals.keeper._host is not None)
            held = Holder(app)
            await held.holds()
            await held.end()
        assert (app._internals.keeper._renewer, app._internals.keeper._host, threads()) == (None, None, 0)


async def _ended(holder: Holder) -> int:
    await holder.holds()
    token: int = await holder.end()
    return token


class DeafStore:
    """Nobody can listen to it."""

    wake = property(lambda self: self)

    def listen(self, subscriber: Subscriber) -> None:
        raise RuntimeError("deaf")


async def test_a_keeper_that_fails_beside_the_heart_is_told_to_whoever_wants_a_lock(app: Drumbeat) -> None:
    keeper = app._internals.keeper
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        attached = group.create_task(keeper.attach(DeafStore()))  # type: ignore[arg-type]
        await until(lambda: keeper._host is not None)
        with pytest.raises(RuntimeError, match="deaf"):
            async with app.lock("x"):
                pass
        attached.cancel()
