"""Histories of processes: what breaks J9, J10, X3, D1, D2, O1, C1 and C2."""

from collections.abc import Callable
from typing import Any

import msgspec

from tests.proof.history import (
    AttemptRecord,
    BeatReceived,
    CancelAnswered,
    ClaimedRef,
    ClaimPerformed,
    Disturbance,
    Ended,
    Enqueued,
    History,
    JobRecord,
    LeaderSeen,
    NodeLife,
    Started,
)

replace: Callable[..., Any] = msgspec.structs.replace


def keep_processes() -> History:
    """p1 leads and stops in order at 5.0, p2 goes on. p1 ran three jobs, at most two at once; o3 was cancelled."""
    history = History(ended_at=10.0, grace=1.0)
    history.lives += [
        NodeLife(node="p1", start=0.0, stop_asked_at=4.0, end=5.0, ending="stopped", concurrency=2),
        NodeLife(node="p2", start=0.0, concurrency=1),
    ]
    history.beats_received += [BeatReceived(node="p1", at=at / 2, is_leader=True) for at in range(1, 8)]
    history.beats_received.append(BeatReceived(node="p1", at=4.1, asks_to_lead=False))
    history.beats_received += [BeatReceived(node="p2", at=at / 2 + 0.2, is_leader=at >= 8) for at in range(1, 19)]
    history.leaders += [
        LeaderSeen(term=3, leader="p1", start=3.5, end=3.5),
        LeaderSeen(term=4, leader="p2", start=4.2, end=4.2),
    ]
    history.leader_lease = 3.0
    history.heartbeat = 0.5
    history.max_displaced = 1
    history.interruptible = ["long"]
    for number, name in enumerate(("o1", "o2", "o3")):
        history.enqueued.append(Enqueued(id=name, at=1.0, acknowledged=True, answered_at=1.0))
        history.jobs = [*history.jobs, JobRecord(id=name, task="long", state="cancelled", failures=0, crashes=0)]
        history.claims_performed.append(claim("p1", 2.0 + number / 10, ref(name, 20 + number, 1_000_000 + number)))
    history.claims_performed.append(ClaimPerformed(node="p2", start=4.5, end=4.5, now=4_500_000))
    history.started += [
        Started(run=21, job="o1", token=20, node="p1", at=2.0),
        Started(run=22, job="o2", token=21, node="p1", at=2.1),
        Started(run=23, job="o3", token=22, node="p1", at=2.5),
    ]
    history.ended += [Ended(run=21, at=2.5), Ended(run=22, at=3.5), Ended(run=23, at=4.4)]
    history.cancels.append(CancelAnswered(job="o3", at=2.6, answer="requested"))
    for name, token in (("o1", 20), ("o2", 21), ("o3", 22)):
        record_attempt(history, name, token, "cancelled")
    return history


def ref(job: str, token: int, run_at: int) -> ClaimedRef:
    return ClaimedRef(job=job, token=token, run_at=run_at)


def claim(node: str, at: float, *jobs: ClaimedRef) -> ClaimPerformed:
    return ClaimPerformed(node=node, start=at, end=at, now=round(at * 1e6), jobs=jobs)


def record_attempt(history: History, job: str, token: int, outcome: str) -> None:
    attempts = (AttemptRecord(token=token, outcome=outcome, started=True),)
    history.jobs = [replace(each, attempts=attempts) if each.id == job else each for each in history.jobs]


def claim_younger_jobs_first(history: History) -> None:
    history.claims_performed[0] = replace(history.claims_performed[0], start=3.0, end=3.0, now=3_000_000)
    history.claims_performed.sort(key=lambda each: each.start)


def run_more_than_the_concurrency(history: History) -> None:
    history.started[-1] = replace(history.started[-1], at=2.3)


def hear_nothing_of_a_cancellation(history: History) -> None:
    history.ended[-1] = replace(history.ended[-1], at=4.9)


def claim_after_sigterm(history: History) -> None:
    history.claims_performed.append(claim("p1", 4.3))


def exit_with_a_run(history: History) -> None:
    history.ended.pop()
    history.cancels.pop()


def exit_with_a_claim(history: History) -> None:
    record_attempt(history, "o3", 22, "crashed")
    history.disturbances.append(Disturbance(kind="kill", node="p2", start=9.5, end=9.6))  # else it is J7 as well


def give_back_what_has_returned(history: History) -> None:
    """The request to stop is a fault of the simulation: it excuses nothing here."""
    history.disturbances.append(Disturbance(kind="stop", node="p1", start=4.0, end=5.0))
    history.ended[-1] = replace(history.ended[-1], result='"done"')
    record_attempt(history, "o3", 22, "released")


def claim_after_a_recorded_stop(history: History) -> None:
    history.disturbances.append(Disturbance(kind="stop", node="p1", start=4.0, end=5.0))
    history.claims_performed.append(claim("p1", 4.3))


def end_by_itself(history: History) -> None:
    history.lives[-1] = replace(history.lives[-1], end=9.0, ending="left")


def stay_away_after_an_outage(history: History) -> None:
    history.disturbances.append(Disturbance(kind="outage", node="p2", start=1.0, end=3.0))
    history.beats_received = [
        beat for beat in history.beats_received if beat.node != "p2" or beat.at < 1 or beat.at > 9
    ]
    history.leader_lease = None


def lead_in_an_old_term(history: History) -> None:
    history.leaders.append(LeaderSeen(term=3, leader="p1", start=4.3, end=4.4))


def elect_nobody(history: History) -> None:
    history.beats_received = [
        replace(beat, is_leader=beat.is_leader and beat.at < 4) for beat in history.beats_received
    ]


def elect_nobody_after_sigterm(history: History) -> None:
    history.beats_received = [
        replace(beat, is_leader=beat.is_leader and not 4 < beat.at < 5.5) for beat in history.beats_received
    ]


BROKEN: dict[Callable[[History], None], str] = {
    claim_younger_jobs_first: "J9",
    run_more_than_the_concurrency: "J10",
    hear_nothing_of_a_cancellation: "X3",
    claim_after_sigterm: "D1",
    claim_after_a_recorded_stop: "D1",
    exit_with_a_run: "D2",
    exit_with_a_claim: "D2",
    give_back_what_has_returned: "D2",
    end_by_itself: "O1",
    stay_away_after_an_outage: "O1",
    lead_in_an_old_term: "C1",
    elect_nobody: "C2",
    elect_nobody_after_sigterm: "C2",
}
