"""Histories of a schedule on a grid of 2 s: what breaks S3, S5, S6 and S7."""

from collections.abc import Callable
from typing import Any

import msgspec

from tests.proof.history import (
    AttemptRecord,
    CursorMove,
    Disturbance,
    Ended,
    FireRecord,
    History,
    JobRecord,
    NodeLife,
    SchedulePolicy,
    Started,
)

replace: Callable[..., Any] = msgspec.structs.replace

EPOCH = 1_000_000.0


def keep_schedule() -> History:
    """Fires at 2, 4 and 8 s; at 6 s the job before was live. The controller was killed at 7.9 s: 8 s is fired late."""
    history = History(ended_at=10.0, grace=1.0, epoch=EPOCH)
    history.policies["grid"] = SchedulePolicy(period=2.0)
    history.lives += [
        NodeLife(node="controller-1", start=0.0, end=7.9, ending="killed"),
        NodeLife(node="controller-2", start=0.0),
    ]
    history.disturbances.append(Disturbance(kind="kill", node="controller-1", start=7.9, end=7.95))
    for number, (due, fired, ended) in enumerate([(2, 2.1, 2.2), (4, 4.0, 6.5), (8, 9.5, 9.6)]):
        job, run = f"grid-{due}", 30 + number
        history.jobs = [
            *history.jobs,
            JobRecord(
                id=job,
                task="grid",
                state="succeeded",
                failures=0,
                crashes=0,
                result=str(run),
                attempts=(AttemptRecord(token=run, outcome="succeeded", started=True),),
                schedule="grid",
            ),
        ]
        history.started.append(Started(run=run, job=job, token=run, node="n9", at=fired))
        history.ended.append(Ended(run=run, at=ended, result=str(run)))
        history.fires = [*history.fires, fire(due, fired, "fired", job)]
        history.cursor_moves.append(
            CursorMove(schedule="grid", at=fired, before=None, after=round((EPOCH + due) * 1e6), fired=1)
        )
    history.fires = [*history.fires, fire(6, 6.0, "skipped", None, "overlap")]
    return history


def fire(due: float, fired: float, outcome: str, job: str | None, reason: str = "") -> FireRecord:
    return FireRecord(
        schedule="grid",
        at=EPOCH + due,
        last=EPOCH + due,
        count=1,
        outcome=outcome,
        job=job,
        recorded_at=EPOCH + fired,
        reason=reason,
    )


def change_fire(history: History, due: float, **changes: Any) -> None:
    history.fires = [
        replace(each, **changes) if (each.schedule, each.at) == ("grid", EPOCH + due) else each
        for each in history.fires
    ]


def fire_late(history: History) -> None:
    change_fire(history, 4, recorded_at=EPOCH + 4.3)


def fire_late_across_a_failover(history: History) -> None:
    history.ended_at = 11.0
    change_fire(history, 8, recorded_at=EPOCH + 10.6)


def stop_firing(history: History) -> None:
    history.fires = [each for each in history.fires if (each.schedule, each.at) not in [("grid", EPOCH + 8)]]
    history.ended_at = 11.0


def move_a_cursor_back(history: History) -> None:
    history.cursor_moves.append(replace(history.cursor_moves[0], at=9.7))


def fire_the_same_again(history: History) -> None:
    history.cursor_moves.append(replace(history.cursor_moves[-1], at=9.7))


def catch_up_too_much(history: History) -> None:
    history.cursor_moves[-1] = replace(history.cursor_moves[-1], fired=2)


def choose_too_many_to_catch_up(history: History) -> None:
    """The job before was live, so that only one of them was fired."""
    history.cursor_moves[-1] = replace(history.cursor_moves[-1], chosen=2)


def fire_beside_a_live_job(history: History) -> None:
    change_fire(history, 6, outcome="fired", job="grid-2", reason="")


def skip_without_a_live_job(history: History) -> None:
    history.ended = [replace(end, at=4.1) if end.run == 31 else end for end in history.ended]


def skip_without_a_fault(history: History) -> None:
    change_fire(history, 6, reason="late")


def leave_the_grid(history: History) -> None:
    change_fire(history, 6, at=EPOCH + 6.01, last=EPOCH + 6.01)


def miscount_a_skipped_range(history: History) -> None:
    change_fire(history, 6, count=2)


BROKEN: dict[Callable[[History], None], str] = {
    fire_late: "S3",
    fire_late_across_a_failover: "S3",
    stop_firing: "S3",
    move_a_cursor_back: "S5",
    fire_the_same_again: "S5",
    catch_up_too_much: "S6",
    choose_too_many_to_catch_up: "S6",
    fire_beside_a_live_job: "S6",
    skip_without_a_live_job: "S6",
    skip_without_a_fault: "S6",
    leave_the_grid: "S7",
    miscount_a_skipped_range: "S7",
}
