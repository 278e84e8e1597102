"""Jobs in Redis to records. record_format.py parses the texts that they are stored in."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from drumbeat.core.claim import ClaimedJob, MalformedJob
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.job import Attempt, EndedJob, Failure, Job, JobState, OutcomeKind, Unique
from drumbeat.core.job_fields import JOB_FIELDS
from drumbeat.ids import InstanceId, JobId, unpack_id
from drumbeat.store.malformed import explain_fault, join_reasons, log_faults, quote, read_value, undecodable_failure
from drumbeat.store.records import Faults, to_datetime, to_datetime_or_none
from drumbeat.store.redis.record_format import (
    JobHeader,
    LiveState,
    header_of_body,
    int_or_zero,
    parse_attempt,
    parse_end_record,
    parse_header,
    parse_live_state,
    salvage_end_record,
    salvage_header,
    salvage_live_state,
)

_decode_text = msgspec.json.Decoder(str).decode
encode_json = msgspec.json.Encoder().encode
_TIMES = tuple(name for name in JOB_FIELDS if name.endswith("_at"))

_FLAGS = (b"-", b"k", b"l", b"p")
UNIQUE_BY_FLAG = {ord("-"): Unique.NO, ord("k"): Unique.NO, ord("l"): Unique.LIVE, ord("p"): Unique.PENDING}

_header_fields = attrgetter(*(name for name in ClaimedJob.__struct_fields__ if name in JobHeader.__struct_fields__))
"""The last fields of ClaimedJob, in its order."""
_JOB_HEADER_FIELDS = tuple(name for name in JOB_FIELDS if name in JobHeader.__struct_fields__)

Hint = tuple[bytes, str]
"""What reporting a success need not look up again: the bytes of the id, and the task ("" if its end unblocks something)."""


def decode_claimed(
    now: int,
    ids: Sequence[bytes],
    bodies: Sequence[bytes],
    mores: Sequence[bytes | None],
    hints: dict[JobId, Hint],
) -> tuple[list[ClaimedJob], list[MalformedJob]]:
    """Jobs as the script returned them, each with the token that the script gave it. Adds a hint for each."""
    jobs: list[ClaimedJob] = []
    malformed: list[MalformedJob] = []
    for number, body in enumerate(bodies):
        raw = ids[number]
        id = unpack_id(raw)
        text = mores[number] if mores else None
        try:
            end = body.index(b"\n")
            header = parse_header(body[1:end])
            args = body[end + 1 :].decode()
            live_state = None if text is None else parse_live_state(text)
        except (ValueError, msgspec.DecodeError):
            malformed.append(_salvage_claimed(now, id, body, text))
            continue
        hints[id] = (raw, header.task if header.key is None and not header.schedule else "")
        if live_state is None:  # as most: without a call
            jobs.append(ClaimedJob(id, now, args, header.due_at, 0, 0, 0, None, *_header_fields(header)))
        else:
            jobs.append(_build_claimed(now, id, args, header, live_state))
    return jobs, malformed


def _build_claimed(now: int, id: JobId, args: str, header: JobHeader, live: LiveState) -> ClaimedJob:
    token = max(now, live.token + 1)
    changing = (live.run_at, live.failures, live.crashes, live.replays, live.blocked_since)
    return ClaimedJob(id, token, args, *changing, *_header_fields(header))


def _salvage_claimed(now: int, id: JobId, body: bytes, text: bytes | None) -> MalformedJob:
    header, args, faults = salvage_header(body)
    live_state, others = salvage_live_state(text, header.due_at)
    faults += others
    log_faults("job", id, faults)
    job = _build_claimed(now, id, args, header, live_state)
    return MalformedJob(job, join_reasons(faults))


def decode_ended(id: JobId, task: bytes, text: bytes) -> EndedJob | None:
    """None for a live job."""
    if not text:
        return None
    end, faults = salvage_end_record(text)
    if faults and end.state is JobState.SUCCEEDED:
        end = msgspec.structs.replace(end, result=None, result_error=join_reasons(faults))
    elif faults:
        end = msgspec.structs.replace(end, error=undecodable_failure(join_reasons(faults)))
    return EndedJob(
        id=id,
        task=task.decode("utf-8", "replace"),
        state=end.state,
        result=end.result,
        result_error=end.result_error,
        error=end.error,
    )


def decode_job(id: JobId, answer: Sequence[Any]) -> Job:
    """One job of the script `get_jobs`. Where it cannot be read, its error says so."""
    try:
        return _decode_job(id, answer)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, msgspec.DecodeError):
        job, faults = _salvage_job(id, answer)
    log_faults("job", id, faults)
    return job


def find_faults(id: JobId, answer: Sequence[Any]) -> Faults:
    """The fields of a job of `get_jobs` that cannot be read."""
    try:
        _decode_job(id, answer)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, msgspec.DecodeError):
        return _salvage_job(id, answer)[1]
    return []


def _salvage_job(id: JobId, answer: Sequence[Any]) -> tuple[Job, Faults]:
    body, text = answer[0], answer[2]
    state, _ = read_value("state", answer[1].decode("utf-8", "replace"), JobState)
    header, args, faults = salvage_header(body)
    if body[:1] not in _FLAGS:
        faults.append(("key", f"{quote(body[:1])} is not a flag of a body"))
    facts: dict[str, Any]
    if state in (JobState.PENDING, JobState.RUNNING):
        live_state, others = salvage_live_state(text, header.due_at)
        facts = _live_facts(live_state)
    else:
        end, others = salvage_end_record(text or b"")
        facts = {"run_at": header.due_at, "token": end.token, "instance": end.instance, "result": end.result}
        facts |= {"started_at": end.started_at, "finished_at": end.finished_at}
    faults += others
    faults = faults or [("record", "its parts do not fit together")]
    facts["error"] = undecodable_failure(join_reasons(faults))
    job = _build_job(id, state, header, args, facts)
    return job, faults


def _live_facts(live: LiveState) -> dict[str, Any]:
    facts = msgspec.structs.asdict(live)
    del facts["blocked_since"]
    return facts


def _decode_job(id: JobId, answer: Sequence[Any]) -> Job:
    body, state, text = answer[0], JobState(answer[1].decode()), answer[2]
    header = header_of_body(body)
    facts: dict[str, Any]
    if state in (JobState.PENDING, JobState.RUNNING):
        live_state = LiveState(run_at=header.due_at) if text is None else parse_live_state(text)
        facts = _live_facts(live_state)
    else:
        facts = _decode_end(header, text)
    if state is JobState.RUNNING:
        instance, token, cancel, progress = answer[3:]
        facts |= {"instance": InstanceId(instance.decode()), "token": token, "started_at": token}
        facts |= {"cancel_requested": cancel == 1, "progress": None if progress is None else _decode_text(progress)}
    facts["unique"] = UNIQUE_BY_FLAG[body[0]]
    return _build_job(id, state, header, body[body.index(b"\n") + 1 :].decode(), facts)


def _build_job(id: JobId, state: JobState, header: JobHeader, args: str, facts: dict[str, Any]) -> Job:
    """The record; facts: what the header does not hold, with times as integers."""
    values = {name: getattr(header, name) for name in _JOB_HEADER_FIELDS} | facts
    for name in _TIMES:
        values[name] = to_datetime_or_none(values.get(name))
    values["timeout"] = None if header.timeout is None else header.timeout / 1_000_000
    values["schedule"] = header.schedule or None
    return Job(id=id, state=state, args=args, **values)


def _decode_end(header: JobHeader, text: bytes) -> dict[str, Any]:
    first, *rest = text.split(b"\n")
    facts = msgspec.structs.asdict(parse_end_record(first))
    del facts["outcome"], facts["state"]
    facts["run_at"] = header.due_at
    if rest:
        run_at, failures, crashes, replays, cancel = map(int, rest[0].split(b","))
        facts |= {"run_at": run_at, "failures": failures, "crashes": crashes, "replays": replays}
        facts |= {"cancel_requested": cancel == 1, "progress": _decode_text(rest[1]) if rest[1] else None}
    return facts


def decode_attempts(tries: Sequence[bytes], text: bytes | None) -> list[Attempt]:
    """Earlier attempts and the last one, if the job ended with one."""
    found = []
    for each in tries:
        try:
            token, instance, outcome, started_at, finished_at, error = parse_attempt(each)
        except (ValueError, msgspec.DecodeError) as broken:
            log_faults("attempt", each, [("record", explain_fault("record", each, broken))])
            continue
        found.append(_to_attempt(token, instance, outcome, started_at, finished_at, error))
    if text is not None:
        end, _ = salvage_end_record(text)
        # A job that was cancelled between claim and start had no attempt.
        unstarted = end.outcome is OutcomeKind.CANCELLED and end.started_at is None
        if end.outcome is not None and not unstarted:
            found.append(_to_attempt(end.token, end.instance, end.outcome, end.started_at, end.finished_at, end.error))
    return found


def _to_attempt(
    token: int,
    instance: InstanceId | None,
    outcome: OutcomeKind,
    started_at: int | None,
    finished_at: int,
    error: Failure | None,
) -> Attempt:
    return Attempt(
        token=token,
        instance=instance,
        outcome=outcome,
        started_at=to_datetime_or_none(started_at),
        finished_at=to_datetime(finished_at),
        error=error,
    )


class PartialDeadGroup(msgspec.Struct, frozen=True):
    """Dead letters of one task and type of error, as far as they were read."""

    count: int
    first_at: int
    last_at: int
    sample: bytes

    def to_record(self, task: bytes, error: bytes, sample: Job | None) -> DeadLetterGroup:
        """`sample` None: it was replayed meanwhile."""
        return DeadLetterGroup(
            task=task.decode("utf-8", "replace"),
            error=error.decode("utf-8", "replace"),
            count=self.count,
            first_at=to_datetime(self.first_at),
            last_at=to_datetime(self.last_at),
            sample=unpack_id(self.sample),
            message="" if sample is None or sample.error is None else sample.error.message,
        )


def merge_group(
    groups: dict[tuple[bytes, bytes], PartialDeadGroup], name: tuple[bytes, bytes], facts: Sequence[Any]
) -> None:
    """Add the groups of a further page; earlier pages had greater ids."""
    count, first_at, last_at, sample = facts
    group = PartialDeadGroup(count, int_or_zero(first_at), int_or_zero(last_at), sample)
    if (known := groups.get(name)) is not None:
        latest = group if group.last_at > known.last_at else known
        group = PartialDeadGroup(
            known.count + group.count, min(known.first_at, group.first_at), latest.last_at, latest.sample
        )
    groups[name] = group
