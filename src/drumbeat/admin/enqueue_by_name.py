"""Enqueue a call of a task by its name, with JSON arguments: for the command line, the dashboard and other programs.

If this program has the task, its signature checks the arguments. If not (a dashboard beside the workers), living workers tell
whether the task exists and which signature it has; the arguments are then checked when the job runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from drumbeat.client import Client
from drumbeat.codec import MAX_DEPTH, JsonCodec, Undecodable
from drumbeat.codec.json_codec import PLAIN, decode_bounded, decoder_of
from drumbeat.codec.limits import has_nul
from drumbeat.context import parent_of_new_jobs
from drumbeat.core.instance import Instance
from drumbeat.core.job import NewJob
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import InvalidArguments, UnknownTask
from drumbeat.ids import new_job_id
from drumbeat.names import check_name, short_repr
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from drumbeat.tasks import Task
from drumbeat.tasks.options import JobOptions, parse_enqueue_options
from drumbeat.tasks.schedule_options import Args

_OBJECT = decoder_of(dict[str, Any])
_ARGUMENT_NAME = re.compile(r"\$\.(\w+)|field `(\w+)`")


async def build_job(
    client: Client, task: str, args: str | Mapping[str, Any] = "{}", **options: Unpack[JobOptions]
) -> NewJob:
    """The job to store for such a call.

    Raises:
        UnknownTask: neither this program nor a living worker has the task.
        InvalidArguments: which argument or option is wrong, and what it may be.
    """
    text = _to_json_text(args, client.settings.payload_limit, client.codec)
    found = client.registry.find(check_name("task", task))
    if found is not None:
        return _build_checked_job(found, text, options, client.settings.payload_limit)
    return await _build_trusted_job(client, task, text, options)


def _to_json_text(args: str | Mapping[str, Any], limit: int, codec: JsonCodec) -> str:
    """The arguments as one line of JSON; text keeps every number as it is written."""
    if not isinstance(args, str):
        try:
            args = codec.encoder.encode(args).decode()
        except Exception as error:  # serializers of the caller may run here
            raise InvalidArguments(f"args cannot be written as JSON: {error}", "args") from error
    try:
        decode_bounded(_OBJECT, args, limit=limit, depth=MAX_DEPTH + 1)
    except Undecodable as error:
        raise InvalidArguments(f"args must be one JSON object of arguments by name: {error.reason}", "args") from error
    raw = args.encode()
    if has_nul(raw):
        raise InvalidArguments("args contains a NUL character", "args")
    return msgspec.json.format(raw, indent=-1).decode()


def decode_arguments(task: Task[..., Any], text: str, limit: int) -> Args:
    """JSON arguments as the task's signature reads them, all positional or all by name.

    Raises:
        InvalidArguments: which argument is wrong; or some can only be given by position and others only by name.
    """
    by_position, by_name = _decode(task, _to_json_text(text, limit, PLAIN), limit)
    if by_position and by_name:
        raise InvalidArguments(
            f"{task.name} takes some arguments only by position: a schedule cannot give both", "args"
        )
    return by_position or by_name


def _decode(task: Task[..., Any], text: str, limit: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        return task.signature.decode(text, limit=limit)
    except Undecodable as error:
        named = _ARGUMENT_NAME.search(error.reason)
        which = next((name for name in named.groups() if name), None) if named else None
        raise InvalidArguments(f"{task.name}: {error.reason}", which or "args") from error


def _build_checked_job(task: Task[..., Any], text: str, options: JobOptions, limit: int) -> NewJob:
    by_position, by_name = _decode(task, text, limit)
    made = task.using(**options).bind(*by_position, **by_name)
    # The text as it was given: a number that no type of Python's own holds exactly is stored as it was written.
    return msgspec.structs.replace(made, args=text)


async def _build_trusted_job(client: Client, task: str, text: str, options: JobOptions) -> NewJob:
    """A job of a task that only workers elsewhere know."""
    overrides = parse_enqueue_options(options)
    store = await client.store()
    living = await store.inspect.list_instances()
    workers = [each for each in living if task in each.tasks]
    if not workers:
        known = {name for each in living for name in each.tasks} | {each.name for each in client.registry}
        raise UnknownTask(task, known)
    newest = max(workers, key=lambda each: each.started_at)
    on_dead = f"{task}.on_dead"
    return NewJob(
        id=new_job_id(),
        task=task,
        queue=await _choose_queue(store, task, overrides.queue, workers),
        args=text,
        signature=newest.tasks[task],
        priority=5 if overrides.priority is None else overrides.priority,
        **{name: getattr(overrides, name) for name in ("run_at", "key", "unique", "retries", "expires_at")},
        delay=overrides.delay_us,
        timeout=overrides.timeout_us,
        expires=overrides.expires_us,
        crash_limit=client.settings.crash_limit,
        on_dead=on_dead if on_dead in newest.tasks else None,
        group=overrides.group or "",
        parent=parent_of_new_jobs(),
    )


async def _choose_queue(store: Store, task: str, requested: str | None, workers: list[Instance]) -> str:
    """The wished queue if a worker that knows the task takes it; else the one that the task's last job was in."""
    taken = {queue for each in workers for queue in each.queues}
    if requested is None:
        last = await find_jobs(store, JobFilter(task=task, limit=1, preview=0))
        likely: list[str] = [*(job.queue for job in last), "default", *(taken if len(taken) == 1 else ())]
        for queue in likely:
            if queue in taken:
                return queue
    elif requested in taken:
        return requested
    names = ", ".join(sorted(taken)) or "none"
    problem = "say which queue" if requested is None else f"no worker of {task!r} takes queue {short_repr(requested)}"
    raise InvalidArguments(f"{problem}; those of its workers are {names}", "queue")
