"""A history with dependencies that keeps all promises, and what can be wrong with it; for test_checkers.py."""

from collections.abc import Callable

from msgspec.structs import replace

from tests.proof.history import AttemptRecord, CancelAnswered, Depends, Ended, Enqueued, History, JobRecord, Started


def attempt(token: int, outcome: str = "succeeded") -> AttemptRecord:
    return AttemptRecord(token=token, outcome=outcome, started=True)


def record(id: str, state: str, *attempts: AttemptRecord, **facts: object) -> JobRecord:
    outcomes = [each.outcome for each in attempts]
    made = JobRecord(
        id=id,
        task="t",
        state=state,
        failures=outcomes.count("dead"),
        crashes=0,
        result=f'"{id}"' if state == "succeeded" else None,
        attempts=attempts,
    )
    return replace(made, **facts)


def keep_graph() -> History:
    """root succeeds, and then child. bad dies: runs goes on without it, lost is cancelled. again dies, is replayed, and with it
    its child revived; but not unwanted, which a person cancelled between the two."""
    ids = ("root", "child", "bad", "runs", "lost", "again", "revived", "unwanted")
    runs = [
        Started(run=1, job="root", token=1, node="n1", at=1.0),
        Started(run=2, job="child", token=2, node="n1", at=2.0),
        Started(run=3, job="bad", token=3, node="n1", at=1.0),
        Started(run=4, job="runs", token=4, node="n1", at=2.0),
        Started(run=5, job="again", token=5, node="n1", at=1.0),
        Started(run=6, job="again", token=6, node="n1", at=3.0),
        Started(run=7, job="revived", token=7, node="n1", at=4.0),
    ]
    fails = {3, 5}
    return History(
        enqueued=[Enqueued(id=id, at=0.0, acknowledged=True, batch=1) for id in ids],
        depends=[
            Depends(parent="root", child="child", if_fails="cancel"),
            Depends(parent="root", child="runs", if_fails="wait"),
            Depends(parent="bad", child="runs", if_fails="run"),
            Depends(parent="bad", child="lost", if_fails="cancel"),
            Depends(parent="again", child="revived", if_fails="cancel"),
            Depends(parent="again", child="unwanted", if_fails="cancel"),
            Depends(parent="refused", child="nobody", if_fails="cancel"),
        ],
        cancels=[CancelAnswered(job="unwanted", at=2.0, answer="cancelled")],
        started=runs,
        ended=[
            Ended(run=run.run, at=run.at + 0.5, result=None if run.run in fails else f'"{run.job}"') for run in runs
        ],
        jobs=[
            record("root", "succeeded", attempt(1)),
            record("child", "succeeded", attempt(2)),
            record("bad", "dead", attempt(3, "dead")),
            record("runs", "succeeded", attempt(4)),
            record("lost", "cancelled", error="ParentFailed"),
            record("again", "succeeded", attempt(5, "dead"), attempt(6), replays=1, failures=0),
            record("revived", "succeeded", attempt(7), replays=1),
            record("unwanted", "cancelled", error="ParentFailed"),
        ],
        ended_at=10.0,
    )


def _change(history: History, id: str, **facts: object) -> None:
    history.jobs = [replace(job, **facts) if job.id == id else job for job in history.jobs]


def _start_at(history: History, run: int, at: float) -> None:
    history.started = [replace(each, at=at) if each.run == run else each for each in history.started]


def start_a_child_before_its_parent_has_ended(history: History) -> None:
    _start_at(history, 2, 1.2)


def start_a_child_before_the_last_run_of_a_parent(history: History) -> None:
    _start_at(history, 3, 2.1)


def start_a_child_of_a_parent_that_died(history: History) -> None:
    history.depends.append(Depends(parent="bad", child="child", if_fails="wait"))


def start_a_child_of_a_live_parent(history: History) -> None:
    _change(history, "bad", state="pending", attempts=(attempt(3, "retry"),))


def let_a_child_wait_for_ever(history: History) -> None:
    _change(history, "lost", state="pending", error=None, waits_for_parents=True)


def cancel_a_child_for_nothing(history: History) -> None:
    history.depends[3] = replace(history.depends[3], if_fails="run")


def leave_a_child_cancelled_after_a_replay(history: History) -> None:
    _change(history, "revived", state="cancelled", error="ParentFailed", attempts=(), replays=0, result=None)
    history.started.pop()
    history.ended.pop()


def start_a_child_that_a_person_cancelled(history: History) -> None:
    history.started.append(Started(run=8, job="unwanted", token=8, node="n1", at=4.0))
    _change(history, "unwanted", state="pending", error=None, attempts=(attempt(8, "retry"),), failures=1, replays=1)


def revive_a_child_that_a_person_cancelled(history: History) -> None:
    _change(history, "unwanted", state="pending", error=None, replays=1)


def run_a_child_again(history: History) -> None:
    _change(history, "child", attempts=(attempt(2), attempt(8, "retry")), failures=1)


def revive_what_nobody_replayed(history: History) -> None:
    _change(history, "child", replays=1)


BROKEN: dict[Callable[[History], None], str] = {
    start_a_child_before_its_parent_has_ended: "W1",
    start_a_child_before_the_last_run_of_a_parent: "W1",
    start_a_child_of_a_parent_that_died: "W1",
    start_a_child_of_a_live_parent: "W1",
    let_a_child_wait_for_ever: "W2",
    cancel_a_child_for_nothing: "W2",
    leave_a_child_cancelled_after_a_replay: "W2",
    start_a_child_that_a_person_cancelled: "X1",
    revive_a_child_that_a_person_cancelled: "X2",
    run_a_child_again: "W3",
    revive_what_nobody_replayed: "W3",
}
