"""The shapes in which rows come out of SQLite: arrays of a JSON text, decoded by msgspec, and their way to our records.

The order of fields is the order of columns in the `.sql` files. Times are still integers here.
"""

from datetime import datetime
from typing import Any

import msgspec

from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.death import DeadGroup
from drumbeat.model.instance import Instance, InstanceState, LeaderInfo, Role
from drumbeat.model.job import Attempt, Claimed, Ended, Hold, Job, JobState, Malformed, OutcomeKind, TaskStats, Unique
from drumbeat.store.malformed import UNREADABLE_NAME, quoted, read_failure, reasons, undecodable
from drumbeat.store.scheduled import FireRow, ScheduleRow, Standing, mend_schedule
from drumbeat.store.sqlite.shapes import Faults, Shape, leave_out

encoded = msgspec.json.Encoder().encode


def as_json(value: Any) -> str:
    """A parameter for json_each, or a structured column."""
    return encoded(value).decode()


failure = read_failure
moment = from_us


def moment_or_none(us: int | None) -> datetime | None:
    return None if us is None else moment(us)


class Held(msgspec.Struct, frozen=True, array_like=True):
    """What must be known of a running job to end its run."""

    seq: int
    id: JobId
    token: int
    task: str
    key: str | None
    unique: Unique
    run_at: int
    claimed_at: int
    failures: int
    crashes: int
    crash_limit: int
    waits_since: int | None
    cancel_requested: int
    on_dead: str | None


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """A live unique job."""

    task: str
    key: str
    id: JobId
    state: JobState


class Letter(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter that somebody wants replayed."""

    id: JobId
    task: str
    key: str | None
    unique: Unique


class EndedRow(msgspec.Struct, frozen=True, array_like=True):
    id: JobId
    task: str
    state: JobState | None
    """None: it is live."""
    result: str | None
    result_error: str | None
    error: str | None

    @classmethod
    def of(cls, job: "JobRow") -> "EndedRow":
        if job.finished_at is None:
            return cls(job.id, job.task, None, None, None, None)
        if job.state is not JobState.DEAD and (error := read_failure(job.error)) is not None:
            return cls(job.id, job.task, job.state, None, error.message, None)
        return cls(job.id, job.task, job.state, job.result, job.result_error, job.error)

    def record(self) -> Ended | None:
        if self.state is None:
            return None
        return Ended(
            id=self.id,
            task=self.task,
            state=self.state,
            result=self.result,
            result_error=self.result_error,
            error=failure(self.error),
        )


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
    cancel_requested: int
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
            error=failure(self.error),
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
            error=failure(self.error),
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
            error=failure(self.error),
        )


class QueueRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    running: int
    waiting: int
    oldest_due: int | None


class DueRow(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    ready: int
    scheduled: int


class PauseRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    paused_by: str
    paused_why: str
    paused_at: int


class TaskRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    pending: int
    running: int
    succeeded: int
    dead: int
    cancelled: int

    def record(self) -> TaskStats:
        return TaskStats(**msgspec.structs.asdict(self))


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    task: str
    error: str
    count: int
    first_at: int
    last_at: int
    sample: JobId
    message: str

    def record(self) -> DeadGroup:
        facts = msgspec.structs.asdict(self)
        return DeadGroup(**facts | {"first_at": moment(self.first_at), "last_at": moment(self.last_at)})


class LeaderRow(msgspec.Struct, frozen=True, array_like=True):
    instance: InstanceId
    term: int
    since: int
    until: int

    def record(self) -> LeaderInfo:
        return LeaderInfo(instance=self.instance, term=self.term, since=moment(self.since), until=moment(self.until))


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


class StateRow(msgspec.Struct, frozen=True, array_like=True):
    id: JobId
    state: str | None
    """None: it is nowhere."""


def _mend_job(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    if any(field == "state" for field, _ in faults) and values["finished_at"] is not None:
        values["state"] = JobState.DEAD
    names = {field: values[field] or UNREADABLE_NAME for field in ("task", "queue")}
    return values | names | {"error": as_json(undecodable(reasons(faults)))}


def _mend_schedule(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    return values | mend_schedule(faults)


def _mend_instance(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    return values | {"ended_why": reasons(faults)}


_claimed = msgspec.json.Decoder(list[Claimed]).decode
_claim = Shape(Claimed, "job")


def claimed(answer: str | list[tuple[JobId | None, tuple[Any, ...]]]) -> tuple[list[Claimed], list[Malformed]]:
    """Claimed jobs, and those that cannot be read; `answer` is what `Claiming.claim` gave."""
    if isinstance(answer, str):
        if not answer:
            return [], []
        try:
            return _claimed(answer), []
        except msgspec.DecodeError:
            answer = [(None, tuple(row)) for row in msgspec.json.decode(answer)]
    jobs: list[Claimed] = []
    malformed: list[Malformed] = []
    for new_id, row in answer:
        job, faults = _claim.salvage(row)
        assert job is not None
        if new_id is not None or faults:
            names = {field: getattr(job, field) or UNREADABLE_NAME for field in ("task", "queue")}
            job = msgspec.structs.replace(job, id=new_id or job.id, **names)
            malformed.append(Malformed(job, reasons(faults or [("id", quoted(row[0]))])))
        else:
            jobs.append(job)
    return jobs, malformed


held = Shape(Held, "job").read
holders = Shape(Holder, "job").read
letters = Shape(Letter, "job").read
ended = msgspec.json.Decoder(list[EndedRow | None]).decode
job_shape = Shape(JobRow, "job", mend=_mend_job)
jobs = job_shape.read
attempts = Shape(AttemptRow, "attempt", id="token", mend=leave_out).read
queues = Shape(QueueRow, "queue", id="name", mend=leave_out).read
due = Shape(DueRow, "queue", id="queue", mend=leave_out).read
pauses = Shape(PauseRow, "queue", id="name").read
tasks = Shape(TaskRow, "task", id="name", mend=leave_out).read
instances = Shape(InstanceRow, "instance", mend=_mend_instance).read
groups = Shape(GroupRow, "dead letter", id="sample", mend=leave_out).read
leaders = Shape(LeaderRow, "leader", id="instance", mend=leave_out).read
schedules = Shape(ScheduleRow, "schedule", id="name", mend=_mend_schedule).read
fires = Shape(FireRow, "fire", id="schedule", mend=leave_out).read
standings = Shape(Standing, "schedule", id="name", mend=leave_out).read
moments = msgspec.json.Decoder(list[tuple[str, int]]).decode
once = msgspec.json.Decoder(tuple[InstanceId | None, int]).decode
holds = Shape(Hold, "job", mend=leave_out).read
states = Shape(StateRow, "job").read
ids = msgspec.json.Decoder(list[JobId]).decode
seqs = msgspec.json.Decoder(list[int]).decode
texts = msgspec.json.Decoder(list[str]).decode
