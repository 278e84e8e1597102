"""What a worker needs of each task to run its jobs, and what follows from arguments that it cannot decode."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from drumbeat.codec import Undecodable
from drumbeat.core.claim import ClaimedJob, Outcome, blocked_on_task, blocked_on_version
from drumbeat.core.job import Failure, OutcomeKind
from drumbeat.errors import InvalidArguments
from drumbeat.retry import Backoff
from drumbeat.settings import MAX_PAYLOAD_LIMIT
from drumbeat.tasks import Registry, Task
from drumbeat.tasks.around import Around
from drumbeat.worker.around_call import surround
from drumbeat.worker.result import HandlerResult, ResultKind, describe_failure

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class TaskSpec:
    """A task as plain attributes, for the hot path."""

    def __init__(self, task: Task[..., Any], arounds: Sequence[Around] = ()) -> None:
        self.name = task.name
        self.function: Callable[..., Any] = surround(task, arounds)
        self.is_async = task.is_async
        self.pool = task.options.pool
        self.batch = task.options.batch
        self.is_plain = task.options.pool == "loop" and task.options.batch is None
        """An async function called once per job: takes the fast path."""
        self.retries = task.options.retries
        self.runs_own_code = task.runs_user_code
        self.backoff: Backoff = task.options.backoff
        self.timeout_us = task.options.timeout_us
        self.signature: str = task.signature.hash
        self.decode: Callable[[str], Arguments] = functools.partial(task.signature.decode, limit=MAX_PAYLOAD_LIMIT)
        self._task = task

    def timeout_for(self, jobs: Iterable[ClaimedJob]) -> float | None:
        """The timeout of a run of these jobs in seconds; of a batch, the shortest."""
        limits = [limit for job in jobs if (limit := job.timeout or self.timeout_us) is not None]
        return min(limits) / 1e6 if limits else None

    def decode_arguments(self, job: ClaimedJob) -> Arguments | HandlerResult | Outcome:
        """The arguments; otherwise the result, or an outcome that blocks the job until a worker of its version comes."""
        try:
            return self.decode(job.args)
        except Undecodable as error:
            return self._handle_undecodable(job, error)

    def _handle_undecodable(self, job: ClaimedJob, error: Undecodable) -> Arguments | HandlerResult | Outcome:
        if error.json and job.signature != self.signature:
            if (upgrader := self._task.upgrader) is None:
                return blocked_outcome(job, blocked_on_version(job.task, job.signature))
            try:
                return self._decode_upgraded(upgrader(msgspec.json.decode(job.args), job.signature))
            except BaseException as broken:  # the user's upgrade function, or its result cannot be decoded either
                return HandlerResult(kind=ResultKind.UNDECODABLE, error=describe_failure(broken))
        return HandlerResult(
            kind=ResultKind.UNDECODABLE, error=Failure("Undecodable", f"the arguments cannot be read: {error.reason}")
        )

    def _decode_upgraded(self, upgraded: dict[str, Any]) -> Arguments:
        if not isinstance(upgraded, dict):
            raise InvalidArguments(f"the upgrade of task {self.name!r} must give a dict of arguments")
        return self.decode(self._task.signature.encode((), upgraded, limit=MAX_PAYLOAD_LIMIT))


def build_task_specs(registry: Registry, *, in_process: bool = False) -> dict[str, TaskSpec]:
    """`in_process`: what would run in a child process runs in this one, as its function allows."""
    specs = {task.name: TaskSpec(task, registry.arounds) for task in registry}
    for spec in specs.values():
        if in_process and spec.pool == "process":
            spec.pool = "loop" if spec.is_async else "thread"
    return specs


def blocked_outcome(job: ClaimedJob, blocked_on: str) -> Outcome:
    """Not claimable until a worker that can run it comes."""
    return Outcome(id=job.id, token=job.token, kind=OutcomeKind.BLOCKED, blocked_on=blocked_on)


def unknown_task_outcome(job: ClaimedJob) -> Outcome:
    return blocked_outcome(job, blocked_on_task(job.task))


def find_resting_queues(tasks: Iterable[Task[..., Any]]) -> dict[str, Callable[[], bool]]:
    """For queues whose tasks can all be paused from outside: whether all of them are."""
    by_queue: dict[str, list[Callable[[], bool] | None]] = {}
    for task in tasks:
        by_queue.setdefault(task.options.queue, []).append(task.is_claiming_paused)
    return {
        queue: lambda all_of=tuple(rests): all(rests() for rests in all_of)  # type: ignore[misc]
        for queue, rests in by_queue.items()
        if None not in rests
    }
