"""What a worker needs of each task to run its jobs, and what follows from arguments that it cannot decode."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from drumbeat.codec import Signature, Undecodable
from drumbeat.codec.json_codec import PLAIN
from drumbeat.core.claim import ClaimedJob, Outcome, blocked_on_task, blocked_on_version
from drumbeat.core.job import Failure, OutcomeKind
from drumbeat.errors import InvalidArguments
from drumbeat.retry import Backoff
from drumbeat.settings import MAX_PAYLOAD_LIMIT, Settings
from drumbeat.tasks import Registry, Task
from drumbeat.tasks.around import Around
from drumbeat.worker.around_call import surround
from drumbeat.worker.result import HandlerResult, ResultKind, describe_failure

MAX_DECODED = 2 * MAX_PAYLOAD_LIMIT
"""Bytes of arguments, with results of parents."""
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class TaskSpec:
    """A task as plain attributes, for the hot path."""

    def __init__(self, task: Task[..., Any], settings: Settings, arounds: Sequence[Around] = ()) -> None:
        self.name = task.name
        self.function: Callable[..., Any] = surround(task, arounds)
        self.is_async = task.is_async
        self.pool = task.options.pool
        self.batch = task.options.batch
        self.on_success = None if task.on_success_task is None else task.on_success_task.name
        self.is_plain = task.options.pool == "loop" and task.options.batch is None and self.on_success is None
        """An async function called once per job, and no more: takes the fast path."""
        self.retries = task.options.resolve_retries(settings)
        self.runs_own_code = task.runs_user_code
        self.backoff: Backoff = task.options.resolve_backoff(settings)
        self.retry_filter = task.options.retry_filter
        self.timeout_us = task.options.timeout_us
        self.signature: str = task.signature.hash
        self.decode: Callable[[str], Arguments] = functools.partial(task.signature.decode, limit=MAX_DECODED)
        self.codec = task.signature.codec if isinstance(task.signature, Signature) else PLAIN
        self._task = task

    @property
    def hints(self) -> Mapping[str, Any]:
        """The types of the parameters, as far as they are known."""
        signature = self._task.signature
        return signature.hints if isinstance(signature, Signature) else {}

    def timeout_for(self, jobs: Iterable[ClaimedJob]) -> float | None:
        """The timeout of a run of these jobs in seconds; of a batch, the shortest."""
        limits = [limit for job in jobs if (limit := job.timeout or self.timeout_us) is not None]
        return min(limits) / 1e6 if limits else None

    def decode_arguments(self, job: ClaimedJob, args: str | None = None) -> Arguments | HandlerResult | Outcome:
        """The arguments; otherwise the result, or an outcome that blocks the job until a worker of its version comes. `args`:
        with results of its parents."""
        text = job.args if args is None else args
        try:
            return self.decode(text)
        except Undecodable as error:
            return self._handle_undecodable(job, text, error)

    def _handle_undecodable(
        self, job: ClaimedJob, text: str, error: Undecodable
    ) -> Arguments | HandlerResult | Outcome:
        if error.json and job.signature != self.signature:
            if (upgrader := self._task.upgrader) is None:
                return blocked_outcome(job, blocked_on_version(job.task, job.signature))
            try:
                return self._decode_upgraded(upgrader(msgspec.json.decode(text), job.signature))
            except BaseException as broken:  # the user's upgrade function, or its result cannot be decoded either
                return HandlerResult(kind=ResultKind.UNDECODABLE, error=describe_failure(broken))
        return HandlerResult(
            kind=ResultKind.UNDECODABLE, error=Failure("Undecodable", f"the arguments cannot be read: {error.reason}")
        )

    def _decode_upgraded(self, upgraded: dict[str, Any]) -> Arguments:
        if not isinstance(upgraded, dict):
            raise InvalidArguments(f"the upgrade of task {self.name!r} must give a dict of arguments")
        return self.decode(self._task.signature.encode((), upgraded, limit=MAX_PAYLOAD_LIMIT))


def build_task_specs(registry: Registry, settings: Settings, *, in_process: bool = False) -> dict[str, TaskSpec]:
    """`in_process`: what would run in a child process runs in this one, as its function allows."""
    specs = {task.name: TaskSpec(task, settings, registry.arounds) for task in registry}
    for spec in specs.values():
        if in_process and spec.pool == "process":
            spec.pool = "loop" if spec.is_async else "thread"
    return specs


def on_success_tasks(specs: Mapping[str, TaskSpec]) -> dict[str, str]:
    """The names of tasks with an on_success task, and of the latter."""
    return {name: spec.on_success for name, spec in specs.items() if spec.on_success is not None}


def blocked_outcome(job: ClaimedJob, blocked_on: str) -> Outcome:
    """Not claimable until a worker that can run it comes."""
    return Outcome(id=job.id, token=job.token, kind=OutcomeKind.BLOCKED, blocked_on=blocked_on)


def unknown_task_outcome(job: ClaimedJob) -> Outcome:
    return blocked_outcome(job, blocked_on_task(job.task))


def served_queues(tasks: Iterable[Task[..., Any]], settings: Settings) -> dict[str, int]:
    """The queues of a worker, with their weights."""
    return settings.queue_weights({task.options.queue for task in tasks}) or {"default": 3}


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
