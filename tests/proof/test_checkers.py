"""Each checker is fed a history that keeps all promises, and the same one with one thing wrong.

Those of limits, tickets, processes, schedules, steps and dependencies are in broken_limits.py, broken_locks.py,
broken_processes.py, broken_schedules.py, broken_steps.py and broken_workflows.py.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.proof import broken_limits, broken_locks, broken_processes, broken_schedules, broken_steps, broken_workflows
from tests.proof.broken_calls import BROKEN_CALLS, beat, claim
from tests.proof.checkers import check
from tests.proof.history import (
    AttemptRecord,
    Broadcast,
    CancelAnswered,
    Disturbance,
    Ended,
    Enqueued,
    FireRecord,
    Heard,
    History,
    JobRecord,
    LeaderSeen,
    LockHeld,
    RateGrant,
    ResourceWrite,
    Started,
)
from tests.proof.registry import CHECKERS

replace: Callable[..., Any] = msgspec.structs.replace


def good_history() -> History:
    """Two plain jobs of one batch, one that was retried, one cancelled, one with a unique key, and a schedule."""
    return History(
        enqueued=[
            Enqueued(id="a", at=0.0, acknowledged=True, batch=1),
            Enqueued(id="b", at=0.0, acknowledged=True, batch=1, due=2.0),
            Enqueued(id="c", at=0.0, acknowledged=True),
            Enqueued(id="d", at=0.0, acknowledged=True, unique_key="k"),
            Enqueued(id="e", at=0.5, acknowledged=True, unique_key="k", existing="d"),
            Enqueued(id="f", at=0.5, acknowledged=False),
            Enqueued(id="g", at=7.0, acknowledged=True, unique_key="k"),
        ],
        started=[
            Started(run=1, job="a", token=1, node="n1", at=1.0),
            Started(run=2, job="b", token=2, node="n1", at=2.0),
            Started(run=3, job="b", token=5, node="n2", at=5.0),
            Started(run=4, job="d", token=3, node="n1", at=1.0),
            Started(run=5, job="tick-1", token=4, node="n1", at=1.0),
            Started(run=6, job="g", token=9, node="n1", at=8.0),
        ],
        ended=[
            Ended(run=1, at=1.5, result="1"),
            Ended(run=2, at=3.0),
            Ended(run=3, at=6.0, result="3"),
            Ended(run=4, at=2.0, result="4"),
            Ended(run=5, at=1.1, result="5"),
            Ended(run=6, at=9.0, result="6"),
        ],
        cancels=[CancelAnswered(job="c", at=0.5, answer="cancelled")],
        locks=[
            LockHeld(lock="l", token=1, node="n1", asked_at=0.0, entered_at=1.0, left_at=2.0),
            LockHeld(lock="l", token=2, node="n2", asked_at=1.5, entered_at=2.0, left_at=3.0),
        ],
        writes=[
            ResourceWrite(resource="r", token=1, at=1.5, accepted=True),
            ResourceWrite(resource="r", token=2, at=2.5, accepted=True),
            ResourceWrite(resource="r", token=1, at=2.6, accepted=False),
        ],
        broadcasts=[Broadcast(message=1, at=1.0, told=2)],
        heard=[Heard(message=1, node="n1", at=1.1), Heard(message=1, node="n2", at=1.1)],
        jobs=[
            JobRecord(id="a", task="t", state="succeeded", failures=0, crashes=0, result="1", attempts=(ok(1),)),
            JobRecord(
                id="b", task="t", state="succeeded", failures=1, crashes=0, result="3", attempts=(retry(2), ok(5))
            ),
            JobRecord(id="c", task="t", state="cancelled", failures=0, crashes=0),
            JobRecord(
                id="d",
                task="t",
                state="succeeded",
                failures=0,
                crashes=0,
                result="4",
                attempts=(ok(3),),
                unique_key="k",
            ),
            JobRecord(
                id="g",
                task="t",
                state="succeeded",
                failures=0,
                crashes=0,
                result="6",
                attempts=(ok(9),),
                unique_key="k",
            ),
            JobRecord(
                id="tick-1",
                task="tick",
                state="succeeded",
                failures=0,
                crashes=0,
                result="5",
                attempts=(ok(4),),
                schedule="tick",
            ),
        ],
        fires=[
            FireRecord(schedule="tick", at=1.0, last=1.0, count=1, outcome="fired", job="tick-1"),
            FireRecord(schedule="tick", at=2.0, last=4.0, count=3, outcome="skipped", job=None),
        ],
        expected_fires={"tick": [1.0, 2.0, 3.0, 4.0]},
        rates=[RateGrant(name="rate", limit=2, per=1.0, at=at) for at in (0.0, 0.5, 1.0, 1.5)],
        leaders=[LeaderSeen(term=1, leader="n1"), LeaderSeen(term=1, leader="n1"), LeaderSeen(term=2, leader="n2")],
        timeouts={"t": 5.0},
        poisonous=["poison"],
        ended_at=10.0,
    )


def ok(token: int) -> AttemptRecord:
    return AttemptRecord(token=token, outcome="succeeded", started=True)


def retry(token: int) -> AttemptRecord:
    return AttemptRecord(token=token, outcome="retry", started=True)


def change_job(history: History, id: str, **changes: Any) -> None:
    history.jobs = [replace(job, **changes) if job.id == id else job for job in history.jobs]


def drop_job(history: History, id: str) -> None:
    history.jobs = [job for job in history.jobs if job.id != id]


def lose_an_acknowledged_job(history: History) -> None:
    drop_job(history, "d")


def invent_a_job(history: History) -> None:
    history.jobs = [*history.jobs, JobRecord(id="x", task="t", state="succeeded", failures=0, crashes=0)]


def tear_a_batch(history: History) -> None:
    history.enqueued = [replace(call, acknowledged=False) if call.batch else call for call in history.enqueued]
    drop_job(history, "b")


def accept_twice(history: History) -> None:
    change_job(history, "b", attempts=(ok(2), ok(5)), failures=0)


def succeed_without_attempt(history: History) -> None:
    change_job(history, "c", state="succeeded")
    history.cancels = []


def lose_a_success(history: History) -> None:
    change_job(history, "a", state="dead")


def use_a_token_again(history: History) -> None:
    history.started.append(Started(run=7, job="a", token=1, node="n2", at=2.0))


def record_tokens_out_of_order(history: History) -> None:
    change_job(history, "b", attempts=(ok(5), retry(2)))


def charge_a_failure_too_many(history: History) -> None:
    change_job(history, "a", failures=1)


def charge_a_crash_too_many(history: History) -> None:
    change_job(history, "a", crashes=1)


def keep_the_result_of_another_run(history: History) -> None:
    change_job(history, "b", result="4")


def accept_a_run_that_raised(history: History) -> None:
    history.ended = [replace(end, result=None) if end.run == 1 else end for end in history.ended]


def succeed_with_a_token_of_no_run(history: History) -> None:
    change_job(history, "a", attempts=(ok(8),))


def run_without_a_record(history: History) -> None:
    change_job(history, "b", attempts=(ok(5),), failures=0)


def take_a_job_without_a_fault(history: History) -> None:
    attempts = (AttemptRecord(token=2, outcome="crashed", started=True), ok(5))
    change_job(history, "b", attempts=attempts, failures=0, crashes=1)


def start_early(history: History) -> None:
    history.started[1] = replace(history.started[1], at=1.9)


def run_two_of_a_key_at_once(history: History) -> None:
    history.started[5] = replace(history.started[5], at=1.5)


def have_two_live_jobs_of_a_key(history: History) -> None:
    change_job(history, "d", state="pending", attempts=(), schedule="tick")
    change_job(history, "g", state="pending", attempts=(), schedule="tick")


def steal_a_live_lease(history: History) -> None:
    history.started[2] = replace(history.started[2], at=2.5)


def leave_a_job_unfinished(history: History) -> None:
    history.enqueued.append(Enqueued(id="z", at=1.0, acknowledged=True))
    history.jobs = [*history.jobs, JobRecord(id="z", task="t", state="pending", failures=0, crashes=0)]


def start_after_cancelled(history: History) -> None:
    history.started.append(Started(run=7, job="c", token=7, node="n1", at=3.0))
    history.ended.append(Ended(run=7, at=4.0))
    change_job(history, "c", attempts=(AttemptRecord(token=7, outcome="cancelled", started=True),))


def end_otherwise_than_cancelled(history: History) -> None:
    change_job(history, "c", state="dead")


def miss_a_fire(history: History) -> None:
    history.fires = history.fires[:1]


def fire_twice(history: History) -> None:
    history.fires = [*history.fires, replace(history.fires[0], job="a")]


def fire_at_no_fire_time(history: History) -> None:
    extra = FireRecord(schedule="tick", at=4.5, last=4.5, count=1, outcome="fired", job="a")
    history.fires = [*history.fires, extra]


def lose_the_job_of_a_fire(history: History) -> None:
    drop_job(history, "tick-1")
    history.started = [run for run in history.started if run.job != "tick-1"]


def use_a_job_for_two_fires(history: History) -> None:
    history.fires = [history.fires[0], replace(history.fires[1], job="tick-1")]


def grant_with_an_old_token(history: History) -> None:
    third = LockHeld(lock="l", token=2, node="n1", asked_at=4.0, entered_at=5.0, left_at=6.0)
    history.locks.append(third)


def hold_a_lock_twice(history: History) -> None:
    history.locks[1] = replace(history.locks[1], entered_at=1.5, asked_at=0.5)


def accept_an_old_token(history: History) -> None:
    history.writes[2] = replace(history.writes[2], accepted=True)


def hear_a_message_twice(history: History) -> None:
    history.heard.append(Heard(message=1, node="n1", at=2.0))


def miss_a_message(history: History) -> None:
    history.heard.pop()


def let_a_poisonous_job_succeed(history: History) -> None:
    change_job(history, "a", task="poison")


def run_beyond_the_timeout(history: History) -> None:
    history.ended = [replace(end, at=20.0) if end.run == 1 else end for end in history.ended]


def exceed_a_rate(history: History) -> None:
    history.rates = [*history.rates, RateGrant(name="rate", limit=2, per=1.0, at=1.2)]


def have_two_leaders_in_a_term(history: History) -> None:
    history.leaders = [*history.leaders, LeaderSeen(term=1, leader="n2")]


def end_otherwise_than_answered(history: History) -> None:
    history.cancels = [*history.cancels, CancelAnswered(job="a", at=2.0, answer="dead")]


BROKEN: dict[Callable[[History], None], str] = {
    lose_an_acknowledged_job: "J1",
    invent_a_job: "J2",
    tear_a_batch: "J3",
    accept_twice: "J4",
    succeed_without_attempt: "J4",
    lose_a_success: "J4",
    use_a_token_again: "J5",
    record_tokens_out_of_order: "J5",
    charge_a_failure_too_many: "J5",
    charge_a_crash_too_many: "J5",
    keep_the_result_of_another_run: "J14",
    accept_a_run_that_raised: "J6",
    succeed_with_a_token_of_no_run: "J14",
    run_without_a_record: "J7",
    take_a_job_without_a_fault: "J7",
    start_early: "J8",
    run_two_of_a_key_at_once: "J11",
    have_two_live_jobs_of_a_key: "J11",
    steal_a_live_lease: "J15",
    leave_a_job_unfinished: "J16",
    start_after_cancelled: "X1",
    end_otherwise_than_cancelled: "X2",
    miss_a_fire: "S1",
    fire_twice: "S1",
    fire_at_no_fire_time: "S2",
    lose_the_job_of_a_fire: "S1",
    use_a_job_for_two_fires: "S1",
    grant_with_an_old_token: "L1",
    hold_a_lock_twice: "L2",
    accept_an_old_token: "L3",
    hear_a_message_twice: "M1",
    miss_a_message: "M1",
    let_a_poisonous_job_succeed: "J12",
    run_beyond_the_timeout: "J13",
    exceed_a_rate: "R1",
    have_two_leaders_in_a_term: "C1",
    end_otherwise_than_answered: "X2",
} | BROKEN_CALLS


Break = Callable[[History], None]
GOOD: dict[Callable[[], History], dict[Break, str]] = {
    good_history: BROKEN,
    broken_locks.keep_locks: broken_locks.BROKEN,
    broken_processes.keep_processes: broken_processes.BROKEN,
    broken_schedules.keep_schedule: broken_schedules.BROKEN,
    broken_steps.keep_steps: broken_steps.BROKEN,
    broken_workflows.keep_graph: broken_workflows.BROKEN,
    broken_limits.keep_limits: broken_limits.BROKEN,
}
CASES = [(make, break_it) for make, breaks in GOOD.items() for break_it in breaks]


def name_of(value: Any) -> str:
    return str(value.__name__)


@pytest.mark.parametrize("make", GOOD, ids=name_of)
def test_a_history_that_keeps_all_promises_has_no_violation(make: Callable[[], History]) -> None:
    assert check(make()) == []


@pytest.mark.parametrize(("make", "break_it"), CASES, ids=name_of)
def test_a_broken_history_is_noticed(make: Callable[[], History], break_it: Break) -> None:
    history = make()
    break_it(history)
    found = {violation.split(":")[0] for violation in check(history)}
    assert GOOD[make][break_it] in found


@pytest.mark.parametrize("checker", CHECKERS, ids=name_of)
def test_each_checker_finds_something_in_one_of_them(checker: Callable[[History], Any]) -> None:
    found = 0
    for make, break_it in CASES:
        history = make()
        break_it(history)
        found += bool(list(checker(history)))
    assert found


def test_what_happens_after_a_fault_of_the_node_is_no_violation() -> None:
    history = good_history()
    steal_a_live_lease(history)
    hold_a_lock_twice(history)
    history.disturbances = [Disturbance(kind="pause", node="n1", start=1.4, end=2.4)]
    assert check(history) == []


@pytest.mark.parametrize(
    "fault",
    [
        Disturbance(kind="pause", node="n3", start=1.4, end=2.4),
        Disturbance(kind="outage", node="n1", start=1.4, end=2.4, call="locks.renew"),
        Disturbance(kind="repeated", node=None, start=1.4, end=2.4),
        Disturbance(kind="pause", node="n1", start=4.0, end=4.5),
    ],
    ids=["of another node", "of other calls", "that changes nothing", "afterwards"],
)
def test_another_fault_excuses_no_stolen_lease(fault: Disturbance) -> None:
    history = good_history()
    steal_a_live_lease(history)
    history.disturbances = [fault]
    assert any(violation.startswith("J15") for violation in check(history))


def test_a_fault_long_before_excuses_no_stolen_lease() -> None:
    history = good_history()
    steal_a_live_lease(history)
    history.grace = 1.0
    history.disturbances = [Disturbance(kind="pause", node="n1", start=0.1, end=0.5)]
    assert any(violation.startswith("J15") for violation in check(history))


def test_a_time_out_is_no_matter_of_the_store() -> None:
    history = good_history()
    run_beyond_the_timeout(history)
    history.disturbances = [Disturbance(kind="outage", node="n1", start=1.4, end=8.0)]
    assert any(violation.startswith("J13") for violation in check(history))
    history.disturbances = [Disturbance(kind="pause", node="n1", start=1.4, end=8.0)]
    assert not any(violation.startswith("J13") for violation in check(history))


@pytest.mark.parametrize(
    ("node", "kind", "is_excused"),
    [
        ("holder-b", "pause", True),  # it cannot ask
        ("holder-a", "pause", True),  # its release told nobody
        ("holder-d", "pause", False),
        ("holder-b", "repeated", False),
    ],
)
def test_who_is_disturbed_need_not_notice_its_grant(node: str, kind: str, is_excused: bool) -> None:
    history = broken_locks.keep_locks()
    broken_locks.forget_to_wake_a_waiter(history)
    history.disturbances = [Disturbance(kind=kind, node=node, start=1.9, end=2.05)]
    assert (check(history) == []) is is_excused


@pytest.mark.parametrize(
    ("node", "kind", "is_excused"),
    [(None, "full", True), (None, "outage", True), ("controller-2", "pause", False), (None, "repeated", False)],
)
def test_a_late_fire_is_excused_only_where_nobody_could_fire(node: str | None, kind: str, is_excused: bool) -> None:
    history = broken_schedules.keep_schedule()
    broken_schedules.change_fire(history, 4, recorded_at=broken_schedules.EPOCH + 6.9)
    broken_schedules.change_fire(history, 6, recorded_at=broken_schedules.EPOCH + 6.9)
    history.disturbances.append(Disturbance(kind=kind, node=node, start=3.9, end=6.9))
    late = [violation for violation in check(history) if violation.startswith("S3")]
    assert (late == []) is is_excused


@pytest.mark.parametrize(
    ("job", "answer", "is_excused"),
    [
        ("revived", "cancelled", True),
        ("revived", "", True),  # it may have been cancelled
        ("revived", "unknown", False),
        ("revived", "requested", False),
        ("again", "cancelled", False),
    ],
)
def test_a_replay_need_not_revive_what_a_person_cancelled(job: str, answer: str, is_excused: bool) -> None:
    history = broken_workflows.keep_graph()
    broken_workflows.leave_a_child_cancelled_after_a_replay(history)
    history.cancels.append(CancelAnswered(job=job, at=2.0, answer=answer))
    assert (not any(violation.startswith("W2") for violation in check(history))) is is_excused


@pytest.mark.parametrize(("claimed_at", "replays", "is_excused"), [(4.05, 1, True), (4.05, 0, False), (3.5, 1, False)])
def test_a_cancellation_was_requested_of_a_life(claimed_at: float, replays: int, is_excused: bool) -> None:
    """Seed 301137 of the simulation: the job died, and was replayed."""
    history = broken_workflows.keep_graph()
    history.jobs = [replace(job, replays=replays) if job.id == "child" else job for job in history.jobs]
    history.cancels.append(CancelAnswered(job="child", at=4.0, answer="requested"))
    _start_again(history, "child", at=5.0)
    history.claims = [claim("child", 9, at=claimed_at, answered_at=claimed_at + 0.01)]
    history.beats = [beat(4.1, 4.2)]
    assert (not any(violation.startswith("X3") for violation in check(history))) is is_excused


def _start_again(history: History, job: str, at: float) -> None:
    history.started.append(Started(run=99, job=job, token=9, node="n1", at=at))


@pytest.mark.parametrize(("cut", "is_excused"), [(1.5, True), (0.05, False)])
def test_after_a_power_cut_nothing_is_known_of_locks(cut: float, is_excused: bool) -> None:
    history = broken_locks.keep_locks()
    broken_locks.take_the_lock_from_its_holder(history)
    history.disturbances = [Disturbance(kind="power", node=None, start=cut, end=cut)]
    assert (not any(violation.startswith("L7") for violation in check(history))) is is_excused
