"""The way of rows to our records, and of our records to columns.

The order of fields is the order of columns in the `.sql` files. Times are still integers in rows.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.death import DeadGroup
from drumbeat.model.instance import Instance, InstanceState, LeaderInfo, Role
from drumbeat.model.job import Attempt, Ended, Failure, Job, JobState, OutcomeKind, QueueStats, TaskStats, Unique

_failure = msgspec.json.Decoder(Failure).decode
_texts = msgspec.json.Decoder(tuple[str, ...]).decode
_roles = msgspec.json.Decoder(tuple[Role, ...]).decode
_tasks = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> str:
    return _encode(value).decode()


def failure_text(error: Failure | None) -> str | None:
    return None if error is None else as_json(error)


def failure(text: str | None) -> Failure | None:
    return None if text is None else _failure(text)


moment = from_us


def moment_or_none(us: int | None) -> datetime | None:
    return None if us is None else moment(us)


def array(values: Sequence[str | int | None]) -> str:
    """The literal of an array of ids or numbers: nothing in it needs quotes."""
    return f"{{{','.join(['NULL' if each is None else str(each) for each in values])}}}"


def columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows turned into one array for each column."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(width)]


class Held(msgspec.Struct, frozen=True):
    """What must be known of a running job to end its run."""

    id: JobId
    token: int
    task: str
    key: str | None
    unique: str
    run_at: int
    claimed_at: int
    failures: int
    crashes: int
    crash_limit: int
    waits_since: int | None
    cancel_requested: bool
    on_dead: str | None
    now: int
    """The moment at which it was looked at; the same for all of one look."""


def job(row: Any) -> Job:
    """The record of a job of any table."""
    return Job(
        id=row["id"],
        task=row["task"],
        queue=row["queue"],
        state=JobState(row["state"]),
        priority=row["priority"],
        key=row["key"],
        args=row["args"],
        signature=row["signature"],
        created_at=moment(row["created_at"]),
        due_at=moment(row["due_at"]),
        run_at=moment(row["run_at"]),
        started_at=moment_or_none(row[11]),  # claimed_at of a live job
        finished_at=moment_or_none(row["finished_at"]),
        instance=row["instance"],
        token=row["token"],
        failures=row["failures"],
        crashes=row["crashes"],
        retries=row["retries"],
        timeout=None if row["timeout"] is None else row["timeout"] / 1_000_000,
        crash_limit=row["crash_limit"],
        unique=Unique(row["unique"]),
        waits_for=row["waits_for"],
        cancel_requested=row["cancel_requested"],
        progress=row["progress"],
        result=row["result"],
        result_error=row["result_error"],
        error=failure(row["error"]),
        on_dead=row["on_dead"],
        life=row["life"],
        tenant=row["tenant"],
        schedule=row["schedule"],
        trace=row["trace"],
    )


def last_attempt(row: Any) -> Attempt | None:
    """The run that ended this job; None if it ended without one."""
    outcome, finished_at = row["outcome"], row["finished_at"]
    if outcome is None or finished_at is None:
        return None
    if outcome == OutcomeKind.CANCELLED and row["started_at"] is None:
        return None  # it was claimed, heard of its cancellation and never started
    return attempt(row)


def attempt(row: Any) -> Attempt:
    instance: InstanceId | None = row["instance"]
    return Attempt(
        token=row["token"],
        instance=instance,
        outcome=OutcomeKind(row["outcome"]),
        started_at=moment_or_none(row["started_at"]),
        finished_at=moment(row["finished_at"]),
        error=failure(row["error"]),
    )


def ended(row: Any) -> Ended | None:
    """None for a live job."""
    if row["state"] is None:
        return None
    return Ended(
        id=row["id"],
        task=row["task"],
        state=JobState(row["state"]),
        result=row["result"],
        result_error=row["result_error"],
        error=failure(row["error"]),
    )


def queue(row: Any) -> QueueStats:
    """But for how many of its jobs are due."""
    return QueueStats(
        name=row["name"],
        ready=0,
        scheduled=0,
        running=row["running"],
        waiting=row["waiting"],
        oldest_due=moment_or_none(row["oldest_due"]),
        paused=row["paused_at"] is not None,
        paused_by=row["paused_by"],
        paused_why=row["paused_why"],
        paused_at=moment_or_none(row["paused_at"]),
    )


def task(row: Any) -> TaskStats:
    return TaskStats(
        name=row["name"],
        pending=row["pending"],
        running=row["running"],
        succeeded=row["succeeded"],
        dead=row["dead"],
        cancelled=row["cancelled"],
    )


def instance(row: Any) -> Instance:
    return Instance(
        id=row["id"],
        state=InstanceState(row["state"]),
        app=row["app"],
        version=row["version"],
        host=row["host"],
        pid=row["pid"],
        roles=_roles(row["roles"]),
        queues=_texts(row["queues"]),
        tasks=_tasks(row["tasks"]),
        concurrency=row["concurrency"],
        running=row["running"],
        refused=row["refused"],
        beat=row["beat"],
        started_at=moment(row["started_at"]),
        beat_at=moment(row["beat_at"]),
        rooms=_tasks(row["rooms"]),
        ended_at=moment_or_none(row["ended_at"]),
        ended_why=row["ended_why"],
    )


def group(row: Any) -> DeadGroup:
    return DeadGroup(**dict(row) | {"first_at": moment(row["first_at"]), "last_at": moment(row["last_at"])})


def leader(row: Any) -> LeaderInfo:
    return LeaderInfo(**dict(row) | {"since": moment(row["since"]), "until": moment(row["until"])})
