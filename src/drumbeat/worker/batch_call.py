"""Batch tasks: a group of jobs becomes a list of calls, and the handler's answer an ending for each."""

from collections.abc import Callable
from typing import Any

from drumbeat.core.claim import ClaimedJob
from drumbeat.durations import from_us
from drumbeat.tasks import Call
from drumbeat.worker.result import HandlerResult, ResultKind, from_exception
from drumbeat.worker.task_spec import Arguments

_RETURNED_NOTHING = HandlerResult(kind=ResultKind.RETURNED)


class WrongBatchResult(Exception):
    """A batch handler must give None, or a list with one answer for each call."""


def build_calls(jobs: list[ClaimedJob], arguments: list[Arguments]) -> list[Call[Any]]:
    # Jobs that come together are often due together: a burst has one moment.
    moments = {due_at: from_us(due_at) for due_at in {job.due_at for job in jobs}}
    return [
        Call(
            value=args[0],
            id=job.id,
            key=job.key,
            attempt=job.failures + 1,
            scheduled_for=moments[job.due_at],
            token=job.token,
        )
        for job, (args, _) in zip(jobs, arguments, strict=True)
    ]


def split_results(task: str, calls: int, answers: Any, returned: Callable[[Any], HandlerResult]) -> list[HandlerResult]:
    """None: all succeeded. A list: for each call its result, or the exception (also Snooze, RetryLater) that ended it."""
    if answers is None:
        return [_RETURNED_NOTHING] * calls
    if not isinstance(answers, list) or len(answers) != calls:
        shape = f"a list of {len(answers)}" if isinstance(answers, list) else type(answers).__name__
        error = WrongBatchResult(
            f"batch task {task!r} was given {calls} calls and must return None or a list of {calls}, not {shape}"
        )
        return [from_exception(error)] * calls
    return [
        from_exception(answer)
        if isinstance(answer, BaseException)
        else _RETURNED_NOTHING
        if answer is None
        else returned(answer)
        for answer in answers
    ]
