"""Batch tasks: jobs become a list of calls, and what the handler returns becomes a result for each."""

from typing import Any

from drumbeat.core.claim import ClaimedJob
from drumbeat.durations import from_us
from drumbeat.tasks import Call
from drumbeat.worker.result import RETURNED_NOTHING, HandlerResult, ResultEncoder, from_exception, from_value
from drumbeat.worker.task_spec import Arguments


class WrongBatchResult(Exception):
    """A batch handler must return None, or a list with one result for each call."""


def build_calls(jobs: list[ClaimedJob], arguments: list[Arguments]) -> list[Call[Any]]:
    # Jobs of a burst are due at the same time: convert each time once.
    due_times = {due_at: from_us(due_at) for due_at in {job.due_at for job in jobs}}
    return [
        Call(
            value=args[0],
            id=job.id,
            key=job.key,
            attempt=job.failures + 1,
            scheduled_for=due_times[job.due_at],
            token=job.token,
        )
        for job, (args, _) in zip(jobs, arguments, strict=True)
    ]


def split_results(task: str, calls: int, answers: Any, encode: ResultEncoder) -> list[HandlerResult]:
    """None: all succeeded. A list: for each call its result, or the exception (also Snooze, RetryLater) that ended it."""
    if answers is None:
        return [RETURNED_NOTHING] * calls
    if not isinstance(answers, list) or len(answers) != calls:
        shape = f"a list of {len(answers)}" if isinstance(answers, list) else type(answers).__name__
        error = WrongBatchResult(
            f"batch task {task!r} was given {calls} calls and must return None or a list of {calls}, not {shape}"
        )
        return [from_exception(error)] * calls
    return [
        from_exception(answer) if isinstance(answer, BaseException) else from_value(answer, encode)
        for answer in answers
    ]
