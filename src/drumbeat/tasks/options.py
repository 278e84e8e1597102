"""The options of a task and of one enqueue, as users write them and as they are stored.

Everything is checked at the decorator or at `using`, so that an error shows where the mistake is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal, TypedDict

import msgspec

from drumbeat import names
from drumbeat.core.edge import IfParentFails
from drumbeat.core.job import Job, NewJob, Unique
from drumbeat.core.limits import LinePolicy
from drumbeat.durations import Duration, microseconds, to_us
from drumbeat.errors import ConfigError, InvalidArguments, JobError
from drumbeat.flow_parts import list_calls
from drumbeat.ids import JobId
from drumbeat.names import ErrorClass, short_repr
from drumbeat.retry import (
    RETRY_ALL,
    Backoff,
    Delays,
    ExceptionTypes,
    RetryFilter,
    parse_backoff,
    parse_retry_filter,
)
from drumbeat.setting_parsers import MAX_RETRIES
from drumbeat.settings import Settings

from .limits import Group, Limit, Order, check_group, parse_group, parse_task_policy
from .parents import Parent, ParentPolicy, parse_parents, parse_policy

MAX_BATCH = 10_000
MAX_JOBS_AT_ONCE = 100_000
MAX_WORKFLOW_JOBS = MAX_JOBS_AT_ONCE + 1_000
"""So that a `task.map` of 100,000 items has room for its finaliser and what comes around it."""
MAX_ARGS_AT_ONCE = 64 * 1024 * 1024
"""Total bytes in one `enqueue_many`: it occupies a SQLite file or a Redis for about half a second, on a good disk."""
_ARGS, _AFTER = attrgetter("args"), attrgetter("after")
SPLIT_ADVICE = "split it into several calls, which are still one transaction with conn="
POLICY_WITHOUT_PARENTS = (
    "if_parent_fails needs parents: after=[...], or a parent's result as an argument; in a workflow give it to "
    "flow.add(call, after=[...], if_parent_fails=...)"
)
PARENTS_IN_TRANSACTION = (
    "a job that waits for others cannot be stored in your own transaction: their workers would wait for its commit; "
    "enqueue it without conn= once the transaction is committed"
)

Pool = Literal["loop", "thread", "process"]


class TaskOptions(TypedDict, total=False):
    """What `@app.task(...)` takes."""

    name: str
    queue: str
    retries: int
    backoff: Backoff | Delays
    retry_on: ExceptionTypes
    no_retry_on: ExceptionTypes
    timeout: Duration | None
    expires: Duration | None
    priority: int
    pool: Literal["thread", "process"] | None
    on_crash: Literal["retry", "dead"]
    transactional: bool
    on_dead: Callable[[Job, JobError], object]
    on_success: Callable[[Job, Any], object]
    limits: Iterable[Limit]
    order: Order
    group: Group


class JobOptions(TypedDict, total=False):
    """Of one job; None is as if not given."""

    delay: Duration | None
    at: datetime | None
    priority: int | None
    queue: str | None
    key: str | None
    unique: bool | Literal["pending"] | None
    retries: int | None
    timeout: Duration | None
    expires: Duration | datetime | None
    group: str | None


class EnqueueOptions(JobOptions, total=False):
    """What `task.using(...)` takes."""

    conn: Any
    notify: bool
    after: Iterable[Parent]
    if_parent_fails: ParentPolicy | None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a task is run."""

    queue: str = "default"
    """The queue of its jobs, unless `using(queue=)` names another."""

    retries: int | None = None
    """How often a failed job is retried: 2 means at most 3 charged attempts. None: as the setting `retries` says."""

    backoff: Backoff | None = None
    """The delays before retries. None: as the setting `backoff` says."""

    retry_filter: RetryFilter = RETRY_ALL
    """Which exceptions are retried: `retry_on` and `no_retry_on`. Default: all."""

    timeout_us: int | None = None
    """How long one attempt may run, in microseconds. None: no limit."""

    expires_us: int | None = None
    """How long after it is due a job may start; if it has not by then, it ends as expired. None: no limit."""

    priority: int = 5
    """0 first, 9 last, within a queue."""

    pool: Pool = "loop"
    """Where its function runs: `async def` on the loop, `def` in a thread or in a child process.

    Default: loop for `async def`, thread for `def`.
    """

    batch: int | None = None
    """The maximum number of calls that its function gets at once. None: it is called for each job."""

    on_crash: Literal["retry", "dead"] = "retry"
    """What happens to a job whose process died: another attempt, up to the crash limit, or a dead letter."""

    transactional: bool = False
    """Its function completes its jobs inside a transaction: a worker refuses to start on a store without transactions."""

    policy: LinePolicy | None = None
    """Its own limits and order. None: those of its queue."""

    group: Group | None = None
    """That of its jobs, or a function of their arguments. None: they are in none."""

    def resolve_retries(self, settings: Settings) -> int:
        return settings.retries if self.retries is None else self.retries

    def resolve_backoff(self, settings: Settings) -> Backoff:
        return settings.backoff if self.backoff is None else self.backoff


def parse_task_options(options: TaskOptions, *, batch: int | None, is_async: bool) -> Options:
    """Check the options of a decorator, except `name`, `on_dead` and `on_success`."""
    names.check_option_names("a task", options, TaskOptions.__annotations__)
    on_crash = options.get("on_crash", "retry")
    if on_crash not in ("retry", "dead"):
        raise ConfigError(f"on_crash must be 'retry' or 'dead', not {short_repr(on_crash)}", "on_crash")
    transactional = options.get("transactional", False)
    if not isinstance(transactional, bool):
        raise ConfigError(f"transactional must be True or False, not {short_repr(transactional)}", "transactional")
    if transactional and batch is not None:
        raise ConfigError("transactional and batch exclude each other: current_job() is for one job", "transactional")
    return Options(
        queue=names.check_name("queue", options.get("queue", "default"), ConfigError),
        retries=check_retries(options["retries"], ConfigError) if "retries" in options else None,
        backoff=parse_backoff(options["backoff"]) if "backoff" in options else None,
        retry_filter=parse_retry_filter(options.get("retry_on"), options.get("no_retry_on")),
        timeout_us=check_timeout(options.get("timeout"), ConfigError),
        expires_us=_check_length("expires", options.get("expires"), ConfigError),
        priority=names.check_priority(options.get("priority", 5), ConfigError),
        pool=_parse_pool(options.get("pool"), is_async),
        batch=None if batch is None else names.check_number("batch", batch, 1, MAX_BATCH, ConfigError),
        on_crash=on_crash,
        transactional=transactional,
        policy=parse_task_policy(options, batch=batch),
        group=parse_group(options.get("group")),
    )


def _parse_pool(pool: object, is_async: bool) -> Pool:
    if pool is None:
        return "loop" if is_async else "thread"
    if pool not in ("thread", "process"):
        raise ConfigError(f"pool must be 'thread' or 'process', not {short_repr(pool)}", "pool")
    if is_async:
        raise ConfigError(f"pool={pool!r} is for `def` functions: an `async def` runs on the loop", "pool")
    return "process" if pool == "process" else "thread"


def check_retries(value: object, error: ErrorClass) -> int:
    return names.check_number("retries", value, 0, MAX_RETRIES, error)


def check_timeout(value: Duration | None, error: ErrorClass) -> int | None:
    return _check_length("timeout", value, error)


def _check_length(name: str, value: Duration | None, error: ErrorClass) -> int | None:
    if value is None:
        return None
    length_us = microseconds(value, name=name, error=error)
    if length_us == 0:
        raise error(f"{name} must be more than 0; leave it out for no limit", name)
    return length_us


def _parse_expiry(value: Duration | datetime | None, run_at: int | None) -> tuple[int | None, int | None]:
    """expires_us and expires_at of EnqueueOverrides."""
    if not isinstance(value, datetime):
        return _check_length("expires", value, InvalidArguments), None
    expires_at = to_us(value, name="expires")
    if run_at is not None and expires_at <= run_at:
        raise InvalidArguments("expires must be later than at: such a job could never start", "expires")
    return None, expires_at


class EnqueueOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one enqueue that override those of its task."""

    queue: str | None = None
    priority: int | None = None
    run_at: int | None = None
    delay_us: int = 0
    key: str | None = None
    unique: Unique = Unique.NO
    retries: int | None = None
    timeout_us: int | None = None
    expires_us: int | None = None
    expires_at: int | None = None
    conn: Any = None
    """The caller's own connection, in whose transaction the job is stored."""
    notify: bool = True
    """Whether the commit of that transaction wakes workers."""
    after: tuple[JobId, ...] = ()
    """The jobs that it waits for."""
    if_parent_fails: IfParentFails | None = None
    group: str | None = None


def parse_enqueue_options(options: JobOptions) -> EnqueueOverrides:
    """Check the options of `using`."""
    names.check_option_names("using()", options, EnqueueOptions.__annotations__, InvalidArguments)
    given: Mapping[str, Any] = options
    if any(value is None for value in options.values()):
        given = {name: value for name, value in options.items() if value is not None}
    if "delay" in given and "at" in given:
        raise InvalidArguments("delay and at exclude each other: give one of them", "delay")
    unique = _parse_unique(given.get("unique", False))
    if unique is not Unique.NO and "key" not in given:
        raise InvalidArguments("unique needs a key: the key is what is unique within its task", "unique")
    notify = check_notify(given.get("conn"), given.get("notify", True))
    parents = parse_parents(given["after"]) if "after" in given else ()
    if parents and "conn" in given:
        raise InvalidArguments(PARENTS_IN_TRANSACTION, "after")
    run_at = to_us(given["at"]) if "at" in given else None
    expires_us, expires_at = _parse_expiry(given.get("expires"), run_at)
    return EnqueueOverrides(
        queue=names.check_name("queue", given["queue"]) if "queue" in given else None,
        priority=names.check_priority(given["priority"]) if "priority" in given else None,
        run_at=run_at,
        delay_us=microseconds(given["delay"], name="delay", error=InvalidArguments) if "delay" in given else 0,
        key=names.check_key(given["key"]) if "key" in given else None,
        unique=unique,
        retries=check_retries(given["retries"], InvalidArguments) if "retries" in given else None,
        timeout_us=check_timeout(given.get("timeout"), InvalidArguments),
        expires_us=expires_us,
        expires_at=expires_at,
        conn=given.get("conn"),
        notify=notify,
        after=parents,
        if_parent_fails=parse_policy(given["if_parent_fails"]) if "if_parent_fails" in given else None,
        group=check_group(given["group"]) if "group" in given else None,
    )


def check_notify(conn: object, notify: object) -> bool:
    if not isinstance(notify, bool):
        raise InvalidArguments(f"notify must be True or False, not {short_repr(notify)}", "notify")
    if conn is None and not notify:
        raise InvalidArguments("notify=False is for jobs that are stored in your own transaction, with conn=", "notify")
    return notify


def has_parents(jobs: Iterable[NewJob[Any]]) -> bool:
    """Whether any of these jobs waits for another."""
    return any(map(_AFTER, jobs))


def check_new_jobs(jobs: Iterable[NewJob[Any]], *, conn: Any = None) -> list[NewJob[Any]]:
    """Check the jobs of `enqueue_many`."""
    listed = list_calls("enqueue_many", jobs)
    check_calls(listed, MAX_JOBS_AT_ONCE, "enqueue_many")
    if conn is not None and has_parents(listed):
        raise InvalidArguments(PARENTS_IN_TRANSACTION, "after")
    return listed


def check_calls(listed: Sequence[NewJob[Any]], limit: int, api_name: str) -> None:
    """Refuse what is no call, and more than one transaction should hold."""
    if not all(type(job) is NewJob for job in listed):
        wrong = next(job for job in listed if type(job) is not NewJob)
        raise InvalidArguments(f"{api_name} takes what task.bind(...) gives, not {short_repr(wrong)}", "jobs")
    advice = "split it into several" if api_name == "a workflow" else SPLIT_ADVICE
    if len(listed) > limit:
        raise _too_many_jobs_error(api_name, f"{limit:,} jobs", f"{len(listed):,}", advice)
    if len(listed) > 1 and (length := sum(map(len, map(_ARGS, listed)))) > MAX_ARGS_AT_ONCE:
        maximum = f"{MAX_ARGS_AT_ONCE >> 20} MiB of arguments"
        raise _too_many_jobs_error(api_name, maximum, f"{length / (1 << 20):,.0f}", advice)


def _too_many_jobs_error(api_name: str, maximum: str, given: str, advice: str) -> InvalidArguments:
    return InvalidArguments(
        f"{api_name} takes at most {maximum} in one call, not {given}: a call is one transaction, and others may have to "
        f"wait for it; {advice}",
        "jobs",
    )


def _parse_unique(value: object) -> Unique:
    match value:
        case bool():
            return Unique.LIVE if value else Unique.NO
        case "pending":
            return Unique.PENDING
        case _:
            raise InvalidArguments(f"unique must be True, False or 'pending', not {short_repr(value)}", "unique")
