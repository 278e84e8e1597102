"""Histories of the tickets of a lock: one that keeps all promises, and what breaks them."""

from collections.abc import Callable
from typing import Any

import msgspec

from tests.proof.history import History, NodeLife, TicketCall

replace: Callable[..., Any] = msgspec.structs.replace

LEASE = 4.0
RATE: dict[str, Any] = {"lock": "rate", "per": 2.0}


def call(at: float, ticket: str, kind: Any, state: str = "", token: int = 0, **facts: Any) -> TicketCall:
    known: dict[str, Any] = {"lock": "l", "node": f"holder-{ticket[0]}", "end": at, "lease": LEASE}
    return TicketCall(ticket=ticket, call=kind, start=at, state=state, token=token, **known | facts)


def keep_locks() -> History:
    """a holds and releases; b waits behind it, is granted and dies; c waits for the end of b's lease; d waited and died."""
    history = History(ended_at=10.0)
    history.ticket_calls += [
        call(0.1, "a", "acquire", "granted", 1),
        call(0.2, "b", "acquire", "waiting", 2),
        call(0.3, "c", "acquire", "waiting", 3),
        call(0.4, "d", "acquire", "waiting", 4),
        call(1.0, "a", "renew", "granted", 1),
        call(1.2, "b", "renew", "waiting", 2),
        call(1.3, "c", "renew", "waiting", 3),
        call(2.0, "a", "release"),
        call(2.0, "b", "look", "granted", 2),
        call(2.2, "b", "renew", "granted", 2),
        call(2.3, "c", "renew", "waiting", 3),
        call(4.0, "c", "renew", "waiting", 3),
        call(6.2, "c", "look", "granted", 3),
        call(6.3, "d", "look", "lost"),
        call(6.4, "c", "renew", "granted", 3),
        call(6.5, "b", "look", "lost"),
        call(6.6, "d", "acquire", "waiting", 7),
        call(7.0, "c", "release"),
        call(7.0, "d", "look", "granted", 7),
        call(7.1, "d", "release"),
    ]
    for number in range(4):  # one start in 2 s, while four processes ask for it
        name = f"rated-{number}"
        history.ticket_calls += [
            call(0.2, name, "acquire", "waiting" if number else "granted", 10 + number, **RATE, node=name),
            call(0.2 + 2 * number, name, "renew", "granted", 10 + number, **RATE, node=name),
            call(0.3 + 2 * number, name, "release", **RATE, node=name),
        ]
        history.ticket_calls += [
            call(at, name, "renew", "waiting", 10 + number, **RATE, node=name) for at in range(1, 2 * number)
        ]
        history.lives.append(NodeLife(node=name, start=0.0))
    history.lives += [NodeLife(node=f"holder-{name}", start=0.0) for name in "acd"]
    history.lives.append(NodeLife(node="holder-b", start=0.0, end=2.3, ending="killed"))
    return history


def change_call(history: History, at: float, ticket: str, **changes: Any) -> None:
    history.ticket_calls = [
        replace(each, **changes) if (each.start, each.ticket) == (at, ticket) else each for each in history.ticket_calls
    ]


def drop_call(history: History, at: float, ticket: str) -> None:
    history.ticket_calls = [each for each in history.ticket_calls if (each.start, each.ticket) != (at, ticket)]


def grant_beside_the_holder(history: History) -> None:
    change_call(history, 1.2, "b", state="granted")


def grant_beside_a_dead_holder(history: History) -> None:
    change_call(history, 4.0, "c", state="granted")


def pass_over_a_waiter(history: History) -> None:
    history.ticket_calls.append(call(2.1, "x", "acquire", "granted", 9))


def pass_over_a_waiter_that_asks_later(history: History) -> None:
    change_call(history, 2.0, "b", state="waiting")
    change_call(history, 2.2, "b", state="waiting")
    change_call(history, 2.3, "c", state="granted")


def forget_to_wake_a_waiter(history: History) -> None:
    change_call(history, 2.0, "b", start=2.1, end=2.1)


def wake_nobody(history: History) -> None:
    change_call(history, 2.0, "b", state="waiting")
    change_call(history, 2.2, "b", state="waiting")
    history.lives[-1] = NodeLife(node="holder-b", start=0.0)


def wait_for_a_dead_holder_for_longer_than_its_lease(history: History) -> None:
    change_call(history, 6.2, "c", start=6.3, end=6.3)


def wait_for_a_dead_waiter_for_longer_than_its_lease(history: History) -> None:
    """e waits behind d, which died at 3.5 s: until 7.5 s, and not until 8 s."""
    for at in (0.4, 6.3, 6.6, 7.0, 7.1):
        drop_call(history, at, "d")
    history.ticket_calls += [
        call(3.5, "d", "acquire", "waiting", 4),
        call(3.6, "e", "acquire", "waiting", 5),
        call(6.5, "e", "renew", "waiting", 5),
        call(8.0, "e", "look", "granted", 5),
        call(8.1, "e", "release"),
    ]
    history.lives.append(NodeLife(node="holder-e", start=0.0))


def take_the_lock_from_its_holder(history: History) -> None:
    change_call(history, 2.2, "b", state="lost", token=0)


def release_the_lock_of_another(history: History) -> None:
    change_call(history, 2.0, "a", node="holder-b")


def grant_to_an_expired_waiter(history: History) -> None:
    change_call(history, 6.3, "d", state="granted", token=4)


def leave_a_rate_unused(history: History) -> None:
    history.ticket_calls = [
        replace(each, start=6.5, end=6.5) if (each.start, each.ticket) == (6.2, "rated-3") else each
        for each in history.ticket_calls
    ]
    change_call(history, 6.3, "rated-3", start=6.6, end=6.6)


def renew_an_expired_holder(history: History) -> None:
    history.ticket_calls.append(call(7.5, "b", "renew", "granted", 2))


BROKEN: dict[Callable[[History], None], str] = {
    grant_beside_the_holder: "L2",
    grant_beside_a_dead_holder: "L2",
    pass_over_a_waiter: "L4",
    pass_over_a_waiter_that_asks_later: "L4",
    forget_to_wake_a_waiter: "L5",
    wake_nobody: "L5",
    wait_for_a_dead_holder_for_longer_than_its_lease: "L6",
    wait_for_a_dead_waiter_for_longer_than_its_lease: "L6",
    take_the_lock_from_its_holder: "L7",
    release_the_lock_of_another: "L7",
    grant_to_an_expired_waiter: "L8",
    renew_an_expired_holder: "L8",
    leave_a_rate_unused: "R2",
}
