"""The model of a lock itself, with time as a number: histories of real engines are too short to see a lease renewed."""

from drumbeat.core.lock import NewTicket, TicketState
from drumbeat.core.turns import LockQueue, count_free

LEASE = 100


def acquire(lock: LockQueue, id: str, now: int, *, limit: int = 1, per: int | None = None) -> None:
    lock.acquire(NewTicket(id=id, lock="lock", limit=limit, per=per, lease=LEASE, owner="ada", what=""), now)


def states(lock: LockQueue, *ids: str) -> list[TicketState]:
    return [lock.status(id)[0] for id in ids]


def test_a_renewal_keeps_the_named_ticket_and_no_other() -> None:
    lock = LockQueue()
    acquire(lock, "kept", 0, limit=2)
    acquire(lock, "left", 0, limit=2)
    lock.renew(["kept"], LEASE - 1)
    lock.renew([], LEASE)
    assert states(lock, "kept", "left") == [TicketState.GRANTED, TicketState.LOST]
    lock.renew([], 2 * LEASE - 1)
    assert states(lock, "kept") == [TicketState.LOST]


def test_a_lease_that_has_ended_cannot_be_renewed_and_the_next_in_line_has_the_lock() -> None:
    lock = LockQueue()
    acquire(lock, "first", 0)
    acquire(lock, "second", 1)
    lock.renew(["first", "second"], LEASE)
    assert states(lock, "first", "second") == [TicketState.LOST, TicketState.GRANTED]
    assert list(lock.leases.values()) == [2 * LEASE]


def test_no_call_counts_a_ticket_whose_lease_has_ended() -> None:
    for call in (lambda lock: acquire(lock, "new", LEASE), lambda lock: lock.release(["unknown"], LEASE)):
        lock = LockQueue()
        acquire(lock, "old", 0)
        call(lock)
        assert states(lock, "old") == [TicketState.LOST]
    lock = LockQueue()
    acquire(lock, "old", 0)
    assert lock.force_release(LEASE) == 0


def test_a_window_is_open_again_when_its_length_has_passed_and_not_before() -> None:
    lock = LockQueue()
    acquire(lock, "first", 0, per=50)
    lock.release(["first"], 1)
    acquire(lock, "second", 2, per=50)
    lock.renew([], 49)
    assert states(lock, "second") == [TicketState.WAITING]
    lock.renew([], 50)
    assert states(lock, "second") == [TicketState.GRANTED]


def test_holders_and_grants_in_the_window_both_bound_what_is_free() -> None:
    assert [count_free(3, 1), count_free(3, 1, 2), count_free(3, 2, 1), count_free(1, 2)] == [2, 1, 1, 0]
