"""A history with limits that keeps all promises, and what can be wrong with it; for test_checkers.py."""

from collections.abc import Callable

from msgspec.structs import replace

from tests.proof.history import AttemptRecord, Ended, Enqueued, History, JobRecord, Started, TaskLimits

SECOND = 1_000_000
RUNS = {
    # task, group, claimed at, ended at (seconds)
    "one": ("narrow", "a", 1.0, 2.0),
    "two": ("narrow", "a", 1.5, 3.0),
    "three": ("narrow", "a", 3.0, 4.0),
    "other": ("narrow", "b", 1.0, 4.0),
    "fast-1": ("rated", "a", 1.0, 1.1),
    "fast-2": ("rated", "a", 1.2, 1.3),
    "fast-3": ("rated", "a", 3.0, 3.1),
    "first": ("ordered", "a", 1.0, 2.0),
    "second": ("ordered", "a", 2.0, 3.0),
}


def keep_limits() -> History:
    """Two of a group at once and three of all, two starts in two seconds, and two jobs in order."""
    jobs, started, ended = [], [], []
    for number, (id, (task, group, claimed, finished)) in enumerate(RUNS.items(), start=1):
        token, end = round(claimed * SECOND) + number, round(finished * SECOND)
        attempt = AttemptRecord(token=token, outcome="succeeded", started=True, finished_at=end)
        facts = {"failures": 0, "crashes": 0, "result": f'"{id}"'}
        jobs.append(JobRecord(id=id, task=task, state="succeeded", group=group, attempts=(attempt,), **facts))  # type: ignore[arg-type]
        started.append(Started(run=number, job=id, token=token, node="n1", at=claimed))
        ended.append(Ended(run=number, at=finished, result=f'"{id}"'))
    return History(
        enqueued=[
            Enqueued(id=id, at=0.1 * number, acknowledged=True, answered_at=0.1 * number + 0.05)
            for number, id in enumerate(RUNS)
        ],
        started=started,
        ended=ended,
        jobs=jobs,
        limits={
            "narrow": TaskLimits(per_group=2, whole=3),
            "rated": TaskLimits(rate=2, per=2.0),
            "ordered": TaskLimits(is_ordered=True),
        },
    )


def _change(history: History, id: str, **facts: object) -> None:
    history.jobs = [replace(job, **facts) if job.id == id else job for job in history.jobs]


def _claim(history: History, id: str, claimed: float) -> None:
    [job] = [job for job in history.jobs if job.id == id]
    attempt = replace(job.attempts[0], token=round(claimed * SECOND))
    _change(history, id, attempts=(attempt,))
    history.started = [
        replace(run, token=attempt.token, at=claimed) if run.job == id else run for run in history.started
    ]


def run_three_of_a_group_at_once(history: History) -> None:
    _claim(history, "three", 1.7)


def run_four_of_all_at_once(history: History) -> None:
    history.limits = history.limits | {"narrow": TaskLimits(whole=2)}


def start_three_within_two_seconds(history: History) -> None:
    _claim(history, "fast-3", 2.9)


def start_the_second_before_the_first_has_ended(history: History) -> None:
    _claim(history, "second", 1.9)


def start_the_second_although_the_first_waits_for_its_retry(history: History) -> None:
    [job] = [job for job in history.jobs if job.id == "first"]
    attempt = replace(job.attempts[0], outcome="retry")
    _change(history, "first", state="pending", failures=1, result=None, attempts=(attempt,))
    history.ended = [replace(end, result=None) if end.run == 8 else end for end in history.ended]


BROKEN: dict[Callable[[History], None], str] = {
    run_three_of_a_group_at_once: "G1",
    run_four_of_all_at_once: "G1",
    start_three_within_two_seconds: "G2",
    start_the_second_before_the_first_has_ended: "G3",
    start_the_second_although_the_first_waits_for_its_retry: "G3",
}
