"""A history with steps, sleeps and signals that keeps all promises, and what can be wrong with it; for test_checkers.py."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tests.proof.broken_workflows import attempt, record
from tests.proof.history import Ended, Enqueued, History, SignalCall, SignalRead, Started, StepEvent


def event(run: int, at: float, kind: Any, name: str, value: str = "", seconds: float | None = None) -> StepEvent:
    return StepEvent(job="saga", token=run, run=run, at=at, kind=kind, name=name, value=value, seconds=seconds)


def keep_steps() -> History:
    """The first run dies after a step, the second sleeps, the third waits for a signal, the fourth gets it, waits for another,
    and goes on without it in the fifth."""
    return History(
        enqueued=[Enqueued(id="saga", at=0.0, acknowledged=True)],
        started=[Started(run=run, job="saga", token=run, node="n1", at=float(run)) for run in range(1, 6)],
        steps=[
            event(1, 1.1, "called", "a", "a-1"),
            event(1, 1.2, "stepped", "a", "a-1"),
            event(2, 2.1, "stepped", "a", "a-1"),
            event(2, 2.2, "sleeps", "nap", seconds=0.8),
            event(3, 3.1, "slept", "nap"),
            event(3, 3.2, "waits", "w1"),
            event(4, 4.1, "waits", "w1"),
            event(4, 4.1, "got", "w1", "s1"),
            event(4, 4.2, "waits", "w2", seconds=0.7),
            event(5, 5.1, "timed out", "w2"),
            event(5, 5.2, "called", "b", "b-5"),
            event(5, 5.3, "stepped", "b", "b-5"),
        ],
        signals=[
            SignalCall(job="saga", value="s1", at=3.4, answered_at=3.5),
            SignalCall(job="saga", value="s2", at=5.3, answered_at=5.4),
        ],
        signals_read=[SignalRead(job="saga", value="s1", wait="w1")],
        ended=[Ended(run=run, at=run + 0.9, result=None if run < 5 else '"saga"') for run in range(1, 6)],
        jobs=[
            record(
                "saga",
                "succeeded",
                attempt(1, "retry"),
                attempt(2, "suspended"),
                attempt(3, "suspended"),
                attempt(4, "suspended"),
                attempt(5),
                failures=1,
            )
        ],
        epoch=0.0,
        ended_at=10.0,
    )


def call_a_recorded_step(history: History) -> None:
    history.steps.append(event(3, 3.05, "called", "a", "a-1"))


def return_something_else(history: History) -> None:
    history.steps[2] = replace(history.steps[2], value="a-2")
    history.steps.append(replace(history.steps[0], at=1.15, value="a-2"))


def return_what_was_never_called(history: History) -> None:
    history.steps[10] = replace(history.steps[10], value="b-4")


def wake_too_early(history: History) -> None:
    history.steps[3] = replace(history.steps[3], seconds=1.5)


def time_out_too_early(history: History) -> None:
    history.steps[8] = replace(history.steps[8], seconds=2.0)


def read_a_signal_twice(history: History) -> None:
    history.steps[9] = replace(history.steps[9], kind="got", value="s1")


def end_a_wait_twice(history: History) -> None:
    history.steps.append(event(5, 5.05, "got", "w1", "s2"))


def take_two_signals(history: History) -> None:
    history.signals_read.append(SignalRead(job="saga", value="s2", wait="w1"))


def read_what_nobody_sent(history: History) -> None:
    history.signals.pop(0)


def wait_for_what_is_there(history: History) -> None:
    del history.steps[7:]
    history.jobs = [replace(history.jobs[0], state="pending", result=None)]
    history.signals.pop()


def time_out_beside_a_signal(history: History) -> None:
    history.signals[1] = replace(history.signals[1], answered_at=4.5)


BROKEN: dict[Callable[[History], None], str] = {
    call_a_recorded_step: "T1",
    return_something_else: "T2",
    return_what_was_never_called: "T2",
    wake_too_early: "T3",
    time_out_too_early: "T3",
    read_a_signal_twice: "T4",
    end_a_wait_twice: "T4",
    take_two_signals: "T4",
    read_what_nobody_sent: "T4",
    wait_for_what_is_there: "T5",
    time_out_beside_a_signal: "T5",
}
