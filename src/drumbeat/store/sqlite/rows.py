"""Rows that SQLite returns as arrays of one JSON text, decoded by msgspec, and their conversion to records.

The order of fields is the order of columns in the `.sql` files. Times are still integers here.
"""

from typing import Any

import msgspec

from drumbeat.core.claim import ClaimedJob, ClaimRef, MalformedJob
from drumbeat.core.job import JobState
from drumbeat.core.overlap import ScheduleSnapshot
from drumbeat.core.transitions import HeldJob
from drumbeat.core.uniqueness import KeyedRow
from drumbeat.ids import InstanceId, JobId
from drumbeat.store import overview, records
from drumbeat.store.malformed import UNREADABLE_NAME, drop_row, join_reasons, quote
from drumbeat.store.records import EndedRow, StoredJobRow, repair_job
from drumbeat.store.sqlite.row_decoder import RowDecoder


class UniqueHolderRow(msgspec.Struct, frozen=True, array_like=True):
    """A live unique job."""

    task: str
    key: str
    id: JobId
    state: JobState


class DueRow(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    ready: int
    scheduled: int


class PauseRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    paused_by: str
    paused_reason: str
    paused_at: int


_decode_claimed_json = msgspec.json.Decoder(list[ClaimedJob]).decode
_claimed_decoder = RowDecoder(ClaimedJob, "job")


def decode_claimed(
    answer: str | list[tuple[JobId | None, tuple[Any, ...]]],
) -> tuple[list[ClaimedJob], list[MalformedJob]]:
    """Claimed jobs, and those that cannot be read; `answer`: the result of `SqliteClaimer.claim`."""
    if isinstance(answer, str):
        if not answer:
            return [], []
        try:
            return _decode_claimed_json(answer), []
        except msgspec.DecodeError:
            answer = [(None, tuple(row)) for row in msgspec.json.decode(answer)]
    jobs: list[ClaimedJob] = []
    malformed: list[MalformedJob] = []
    for new_id, row in answer:
        job, faults = _claimed_decoder.salvage(row)
        assert job is not None
        if new_id is not None or faults:
            names = {field: getattr(job, field) or UNREADABLE_NAME for field in ("task", "queue")}
            job = msgspec.structs.replace(job, id=new_id or job.id, **names)
            malformed.append(MalformedJob(job, join_reasons(faults or [("id", quote(row[0]))])))
        else:
            jobs.append(job)
    return jobs, malformed


held = RowDecoder(HeldJob, "job").read
holders = RowDecoder(UniqueHolderRow, "job").read
dead_letters = RowDecoder(KeyedRow, "job").read
ended = msgspec.json.Decoder(list[EndedRow | None]).decode
job_decoder = RowDecoder(StoredJobRow, "job", repair=repair_job)
jobs = job_decoder.read
attempts = RowDecoder.of(records.ATTEMPTS).read
queues = RowDecoder.of(overview.QUEUES).read
due = RowDecoder(DueRow, "queue", id="queue", repair=drop_row).read
tasks = RowDecoder.of(overview.TASKS).read
instances = RowDecoder.of(records.INSTANCES).read
groups = RowDecoder.of(overview.DEAD_GROUPS).read
leaders = RowDecoder.of(overview.LEADERS).read
schedules = RowDecoder.of(records.SCHEDULES).read
fires = RowDecoder.of(records.FIRES).read
snapshots = RowDecoder(ScheduleSnapshot, "schedule", id="name", repair=drop_row).read
fire_times = msgspec.json.Decoder(list[tuple[str, int]]).decode
once = msgspec.json.Decoder(tuple[InstanceId | None, int]).decode
claim_refs = RowDecoder(ClaimRef, "job", repair=drop_row).read
ids = msgspec.json.Decoder(list[JobId]).decode
seqs = msgspec.json.Decoder(list[int]).decode
texts = msgspec.json.Decoder(list[str]).decode
