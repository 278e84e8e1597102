"""Histories with one wrong call between a node and the store: test_checkers.py feeds them to the checkers."""

from collections.abc import Callable

from msgspec.structs import replace

from tests.proof.history import (
    BeatSent,
    CancelAnswered,
    ClaimMade,
    DeathDeclared,
    Disturbance,
    Enqueued,
    History,
    LockHeld,
    ReleaseSent,
)


def claim(job: str, token: int, at: float, answered_at: float) -> ClaimMade:
    return ClaimMade(job=job, token=token, instance="i1", node="n1.0", at=at, answered_at=answered_at)


def beat(asked_at: float, answered_at: float | None, *, instance: str = "i1", is_alive: bool = True) -> BeatSent:
    node = instance.replace("i", "n") + ".0"
    return BeatSent(instance=instance, node=node, asked_at=asked_at, answered_at=answered_at, is_alive=is_alive)


def refuse_a_unique_job(history: History) -> None:
    refused = Enqueued(id="h", at=1.0, acknowledged=False, unique_key="k", refusal="StoreError()")
    history.enqueued.append(refused)


def add_a_second_job_of_a_key(history: History) -> None:
    history.enqueued[3] = replace(history.enqueued[3], answered_at=0.1)
    history.enqueued[6] = replace(history.enqueued[6], at=0.2, answered_at=0.3)


def declare_dead_after_a_failed_heartbeat(history: History) -> None:
    history.dead_after = 3.0
    history.beats = [beat(1.0, 1.1), beat(2.0, None), beat(3.0, 3.1), beat(4.1, 4.2)]
    history.deaths = [DeathDeclared(instance="i2", by="n1.0", at=4.2)]


def declare_dead_who_is_alive(history: History) -> None:
    history.dead_after = 3.0
    history.beats = [beat(1.0, 1.1), beat(2.5, 2.6, instance="i2")]
    history.deaths = [DeathDeclared(instance="i2", by="n1.0", at=4.2)]


def give_up_a_claim_that_is_answered(history: History) -> None:
    history.claims = [claim("a", 1, at=0.2, answered_at=0.9)]
    history.releases = [ReleaseSent(job="a", token=1, node="n1.0", at=0.5)]


def start_what_was_claimed_for_a_dead_instance(history: History) -> None:
    history.claims = [claim("a", 1, at=0.2, answered_at=0.9)]
    history.beats = [beat(0.4, 0.5, is_alive=False)]


def start_a_cancelled_job_from_the_buffer(history: History) -> None:
    history.claims = [claim("b", 5, at=3.5, answered_at=3.6)]
    history.cancels.append(CancelAnswered(job="b", at=4.0, answer="requested"))
    history.beats = [beat(4.1, 4.2)]


def rely_on_a_lock_that_another_has(history: History) -> None:
    history.locks = [
        LockHeld(lock="l", token=1, node="n1", asked_at=0.0, entered_at=1.0, left_at=3.0, is_exact=True),
        LockHeld(lock="l", token=2, node="n2", asked_at=0.5, entered_at=2.0, left_at=3.0, is_exact=True),
    ]
    # A pause that is over excuses nothing; it would, if it were not known when the holder relied on its lock.
    history.disturbances = [Disturbance(kind="pause", node="n1", start=1.2, end=1.8)]


def run_beyond_the_timeout_of_the_job(history: History) -> None:
    history.timeouts = {"t": 60.0}
    history.enqueued[0] = replace(history.enqueued[0], timeout=1.0)
    history.ended = [replace(end, at=9.0) if end.run == 1 else end for end in history.ended]


BROKEN_CALLS: dict[Callable[[History], None], str] = {
    refuse_a_unique_job: "J11",
    add_a_second_job_of_a_key: "J11",
    declare_dead_after_a_failed_heartbeat: "J15",
    declare_dead_who_is_alive: "J15",
    give_up_a_claim_that_is_answered: "J15",
    start_what_was_claimed_for_a_dead_instance: "J15",
    start_a_cancelled_job_from_the_buffer: "X3",
    rely_on_a_lock_that_another_has: "L2",
    run_beyond_the_timeout_of_the_job: "J13",
}
