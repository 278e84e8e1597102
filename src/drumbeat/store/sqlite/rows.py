"""The shapes in which rows come out of SQLite: arrays of a JSON text, decoded by msgspec, and their way to our records.

The order of fields is the order of columns in the `.sql` files. Times are still integers here.
"""

from datetime import datetime
from typing import Any

import msgspec

from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.death import DeadGroup
from drumbeat.model.instance import LeaderInfo
from drumbeat.model.job import Claimed, Ended, Hold, JobState, Malformed, TaskStats, Unique
from drumbeat.store.malformed import UNREADABLE_NAME, quoted, read_failure, reasons
from drumbeat.store.records import AttemptRow, InstanceRow, JobRow, mend_instance, mend_job, mend_schedule
from drumbeat.store.scheduled import FireRow, ScheduleRow, Standing
from drumbeat.store.sqlite.shapes import Shape, leave_out

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


class StateRow(msgspec.Struct, frozen=True, array_like=True):
    id: JobId
    state: str | None
    """None: it is nowhere."""


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
job_shape = Shape(JobRow, "job", mend=mend_job)
jobs = job_shape.read
attempts = Shape(AttemptRow, "attempt", id="token", mend=leave_out).read
queues = Shape(QueueRow, "queue", id="name", mend=leave_out).read
due = Shape(DueRow, "queue", id="queue", mend=leave_out).read
pauses = Shape(PauseRow, "queue", id="name").read
tasks = Shape(TaskRow, "task", id="name", mend=leave_out).read
instances = Shape(InstanceRow, "instance", mend=mend_instance).read
groups = Shape(GroupRow, "dead letter", id="sample", mend=leave_out).read
leaders = Shape(LeaderRow, "leader", id="instance", mend=leave_out).read
schedules = Shape(ScheduleRow, "schedule", id="name", mend=mend_schedule).read
fires = Shape(FireRow, "fire", id="schedule", mend=leave_out).read
standings = Shape(Standing, "schedule", id="name", mend=leave_out).read
moments = msgspec.json.Decoder(list[tuple[str, int]]).decode
once = msgspec.json.Decoder(tuple[InstanceId | None, int]).decode
holds = Shape(Hold, "job", mend=leave_out).read
states = Shape(StateRow, "job").read
ids = msgspec.json.Decoder(list[JobId]).decode
seqs = msgspec.json.Decoder(list[int]).decode
texts = msgspec.json.Decoder(list[str]).decode
