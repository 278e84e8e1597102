"""How long a holder relies on its lease: from when it asked, however late the answer comes."""

from pathlib import Path

from drumbeat.clock import SYSTEM
from drumbeat.locks.ticket import MAX_SAFETY_MARGIN_S
from tests.conftest import fresh_url
from tests.faults import FaultyStore
from tests.locks.conftest import FaultyApp
from tests.waiting import until

LEASE, RENEW, LATE = 3.0, 0.5, 0.2
"""Seconds. A renewal begins long after an answer that was late."""


async def answer_late() -> None:
    await SYSTEM.sleep(LATE)


def is_trusted_too_long(trusted_until: float, store: FaultyStore, call: str) -> bool:
    """The store cannot have extended the lease later than it was done with the call."""
    return trusted_until > store.done_at[call] + LEASE - min(MAX_SAFETY_MARGIN_S, LEASE / 10)


async def test_a_grant_that_is_answered_late_is_trusted_from_the_question(tmp_path: Path) -> None:
    async with FaultyApp(fresh_url("sqlite", tmp_path), lock_lease=LEASE, lock_renew=RENEW) as app:
        store: FaultyStore = await app._internals.store()  # type: ignore[assignment]
        store.late_answers["locks.acquire"] = answer_late
        async with app.lock("x") as lock:
            assert not is_trusted_too_long(lock._ticket.trusted_until, store, "locks.acquire")


async def test_a_renewal_that_is_answered_late_is_trusted_from_the_question(tmp_path: Path) -> None:
    async with (
        FaultyApp(fresh_url("sqlite", tmp_path), lock_lease=LEASE, lock_renew=RENEW) as app,
        app.lock("x") as lock,
    ):
        granted = lock._ticket.trusted_until
        app.keeper_store.late_answers["locks.ticket_status"] = answer_late
        await until(lambda: lock._ticket.trusted_until > granted, what="a renewal")
        assert not is_trusted_too_long(lock._ticket.trusted_until, app.keeper_store, "locks.ticket_status")
