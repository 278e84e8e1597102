"""Rows of jobs, attempts, instances, acts and roll-ups as SQL engines give them, and their way to our records.

The order of fields is the order of columns in the `.sql` files. Times are still integers here. `mend_*` says what becomes of a
row that cannot be read as it is: it is shown, with the reason where people look.
"""

from datetime import datetime
from typing import Any

import msgspec

from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.audit import Act
from drumbeat.model.instance import Instance, InstanceState, Role
from drumbeat.model.job import Attempt, Job, JobState, OutcomeKind, Unique
from drumbeat.store import scheduled
from drumbeat.store.malformed import UNREADABLE_NAME, read_failure, reasons, undecodable

Faults = list[tuple[str, str]]

moment = from_us


def moment_or_none(us: int | None) -> datetime | None:
    return None if us is None else moment(us)


class JobRow(msgspec.Struct, frozen=True, array_like=True):
    """A job of any table; columns that a table lacks are null."""

    id: JobId
    task: str
    queue: str
    state: JobState
    priority: int
    key: str | None
    args: str
    signature: str
    created_at: int
    due_at: int
    run_at: int
    started_at: int | None
    finished_at: int | None
    instance: InstanceId | None
    token: int
    outcome: OutcomeKind | None
    failures: int
    crashes: int
    retries: int | None
    timeout: int | None
    crash_limit: int
    unique: Unique
    waits_for: str | None
    waits_since: int | None
    cancel_requested: bool | int
    progress: str | None
    result: str | None
    result_error: str | None
    error: str | None
    on_dead: str | None
    life: int
    tenant: str
    schedule: str | None
    trace: str | None

    def record(self) -> Job:
        return Job(
            id=self.id,
            task=self.task,
            queue=self.queue,
            state=self.state,
            priority=self.priority,
            key=self.key,
            args=self.args,
            signature=self.signature,
            created_at=moment(self.created_at),
            due_at=moment(self.due_at),
            run_at=moment(self.run_at),
            started_at=moment_or_none(self.started_at),
            finished_at=moment_or_none(self.finished_at),
            instance=self.instance,
            token=self.token,
            failures=self.failures,
            crashes=self.crashes,
            retries=self.retries,
            timeout=None if self.timeout is None else self.timeout / 1_000_000,
            crash_limit=self.crash_limit,
            unique=self.unique,
            waits_for=self.waits_for,
            cancel_requested=bool(self.cancel_requested),
            progress=self.progress,
            result=self.result,
            result_error=self.result_error,
            error=read_failure(self.error),
            on_dead=self.on_dead,
            life=self.life,
            tenant=self.tenant,
            schedule=self.schedule,
            trace=self.trace,
        )

    def last_attempt(self) -> Attempt | None:
        """The run that ended this job; None if it ended without one."""
        if self.outcome is None or self.finished_at is None:
            return None
        if self.outcome is OutcomeKind.CANCELLED and self.started_at is None:
            return None  # it was claimed, heard of its cancellation and never started
        return Attempt(
            token=self.token,
            instance=self.instance,
            outcome=self.outcome,
            started_at=moment_or_none(self.started_at),
            finished_at=moment(self.finished_at),
            error=read_failure(self.error),
        )


class AttemptRow(msgspec.Struct, frozen=True, array_like=True):
    token: int
    instance: InstanceId | None
    outcome: OutcomeKind
    started_at: int | None
    finished_at: int
    error: str | None

    def record(self) -> Attempt:
        return Attempt(
            token=self.token,
            instance=self.instance,
            outcome=self.outcome,
            started_at=moment_or_none(self.started_at),
            finished_at=moment(self.finished_at),
            error=read_failure(self.error),
        )


class InstanceRow(msgspec.Struct, frozen=True, array_like=True):
    id: InstanceId
    state: InstanceState
    app: str
    version: str
    host: str
    pid: int
    roles: tuple[Role, ...]
    queues: tuple[str, ...]
    tasks: dict[str, str]
    concurrency: int
    running: int
    refused: int
    beat: int
    started_at: int
    beat_at: int
    rooms: dict[str, str]
    ended_at: int | None
    ended_why: str | None

    def record(self) -> Instance:
        facts = msgspec.structs.asdict(self)
        facts |= {
            "started_at": moment(self.started_at),
            "beat_at": moment(self.beat_at),
            "ended_at": moment_or_none(self.ended_at),
        }
        return Instance(**facts)


class ActRow(msgspec.Struct, frozen=True, array_like=True):
    id: str
    who: str
    role: str
    via: str
    verb: str
    target: str
    why: str
    at: int
    request_key: str | None
    request_hash: str | None
    done_at: int | None
    touched: int | None
    outcome: str | None
    answer: str | None

    def record(self) -> Act:
        facts = msgspec.structs.asdict(self)
        return Act(**facts | {"at": moment(self.at), "done_at": moment_or_none(self.done_at)})


class RollupRow(msgspec.Struct, frozen=True, array_like=True):
    at: int
    queue: str
    task: str
    counts: list[int]


def mend_job(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    if any(field == "state" for field, _ in faults) and values["finished_at"] is not None:
        values["state"] = JobState.DEAD
    names = {field: values[field] or UNREADABLE_NAME for field in ("task", "queue")}
    return values | names | {"error": msgspec.json.encode(undecodable(reasons(faults))).decode()}


def mend_schedule(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    return values | scheduled.mend_schedule(faults)


def mend_instance(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    return values | {"ended_why": reasons(faults)}
