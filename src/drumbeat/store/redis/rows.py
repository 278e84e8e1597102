"""Loads jobs from Redis and decodes them to records. record_format.py parses the texts that they are stored in."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from drumbeat.core.claim import ClaimedJob, ClaimRef, MalformedJob
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.job import Attempt, EndedJob, Job, JobState, OutcomeKind, Unique
from drumbeat.core.job_fields import JOB_FIELDS
from drumbeat.ids import InstanceId, JobId, unpack_id
from drumbeat.store.malformed import join_reasons, log_faults, quote, read_value, undecodable_failure
from drumbeat.store.records import Faults, to_datetime, to_datetime_or_none
from drumbeat.store.redis import record_format
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import JobHeader, LiveState, parse_header, parse_live_state

_decode_text = msgspec.json.Decoder(str).decode
encode_json = msgspec.json.Encoder().encode
_TIMES = tuple(name for name in JOB_FIELDS if name.endswith("_at"))

_FLAGS = (b"-", b"k", b"l", b"p")
UNIQUE_BY_FLAG = {ord("-"): Unique.NO, ord("k"): Unique.NO, ord("l"): Unique.LIVE, ord("p"): Unique.PENDING}

_header_fields = attrgetter(*(name for name in ClaimedJob.__struct_fields__ if name in JobHeader.__struct_fields__))
"""The last fields of ClaimedJob, in its order; behind them are has_run and binds, which are of the live state."""
_JOB_HEADER_FIELDS = tuple(name for name in JOB_FIELDS if name in JobHeader.__struct_fields__)

_JOBS_PER_CALL = 500
MAX_READ_BYTES = 8 * 1024 * 1024
"""Bytes of jobs that one call reads: a few milliseconds."""

Hint = tuple[bytes, str, tuple[str, str] | None]
"""What reporting a success need not look up again: the bytes of the id, the task ("" if its end unblocks something), queue and
lane of a job that is in one."""


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
        place = (header.queue, header.lane) if header.lane else None
        hints[id] = (raw, header.task if header.key is None and not header.schedule else "", place)
        if live_state is None:  # as most: without a call
            jobs.append(ClaimedJob(id, now, args, header.due_at, 0, 0, 0, None, *_header_fields(header)))
        else:
            jobs.append(_build_claimed(now, id, args, header, live_state))
    return jobs, malformed


def _build_claimed(now: int, id: JobId, args: str, header: JobHeader, live: LiveState) -> ClaimedJob:
    token = max(now, live.token + 1)
    if live.suspended is not None:
        header = msgspec.structs.replace(header, expires_at=None)  # it has started
    changing = (live.run_at, live.failures, live.crashes, live.replays, live.blocked_since)
    return ClaimedJob(id, token, args, *changing, *(*_header_fields(header), live.token > 0, live.binds))


def _salvage_claimed(now: int, id: JobId, body: bytes, text: bytes | None) -> MalformedJob:
    header, args, faults = record_format.salvage_header(body)
    live_state, others = record_format.salvage_live_state(text, header.due_at)
    faults += others
    log_faults("job", id, faults)
    job = _build_claimed(now, id, args, header, live_state)
    return MalformedJob(job, join_reasons(faults))


def decode_claim_refs(flat: Sequence[bytes]) -> list[ClaimRef]:
    """Ids and tokens, flat. A score may be formatted as 1.7e+15; it is exact nevertheless."""
    found = record_format.pairs(flat)
    return [ClaimRef(unpack_id(id), record_format.int_or_zero(token)) for id, token in found if len(id) == 16]


def decode_ended(id: JobId, task: bytes, text: bytes) -> EndedJob | None:
    """None for a live job."""
    if not text:
        return None
    end, faults = record_format.salvage_end_record(text)
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


async def load_jobs(
    pool: RedisPool, ids: Sequence[bytes], preview: int | None = None
) -> list[tuple[JobId, Sequence[Any]]]:
    """The jobs that exist, as the script `get_jobs` returns them. `preview`: enough of long texts for so many characters."""
    found: list[tuple[JobId, Sequence[Any]]] = []
    max_text_bytes = "" if preview is None else 4 * preview  # a character has at most four bytes
    while ids:
        page = ids[:_JOBS_PER_CALL]
        answers = await pool.run("get_jobs", max_text_bytes, MAX_READ_BYTES, *page)
        found += [(unpack_id(id), answer) for id, answer in zip(page, answers, strict=False) if answer is not None]
        ids = ids[len(answers) :]
    return found


def decode_job(id: JobId, answer: Sequence[Any]) -> Job:
    """One job of `load_jobs`. Where it cannot be read, its error says so."""
    job, faults = read_job(id, answer)
    if faults:
        log_faults("job", id, faults)
    return job


def read_job(id: JobId, answer: Sequence[Any]) -> tuple[Job, Faults]:
    """Like decode_job, with the fields that cannot be read."""
    try:
        return _decode_job(id, answer), []
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, msgspec.DecodeError):
        return _salvage_job(id, answer)


def _salvage_job(id: JobId, answer: Sequence[Any]) -> tuple[Job, Faults]:
    body, text = answer[0], answer[2]
    state, _ = read_value("state", answer[1].decode("utf-8", "replace"), JobState)
    header, args, faults = record_format.salvage_header(body)
    if body[:1] not in _FLAGS:
        faults.append(("key", f"{quote(body[:1])} is not a flag of a body"))
    facts: dict[str, Any]
    if state in (JobState.PENDING, JobState.RUNNING):
        live_state, others = record_format.salvage_live_state(text, header.due_at)
        facts = _live_facts(live_state)
    else:
        end, others = record_format.salvage_end_record(text or b"")
        facts = {"run_at": header.due_at, "token": end.token, "instance": end.instance, "result": end.result}
        facts |= {"started_at": end.started_at, "finished_at": end.finished_at}
    faults += others
    faults = faults or [("record", "its parts do not fit together")]
    facts["error"] = undecodable_failure(join_reasons(faults))
    job = _build_job(id, state, header, args, facts)
    return job, faults


def _live_facts(live: LiveState) -> dict[str, Any]:
    facts = msgspec.structs.asdict(live)
    del facts["blocked_since"], facts["binds"]
    if live.suspended is not None:
        facts["expires_at"] = None  # it has started
    facts["suspended"] = live.suspended or None
    return facts


def _decode_job(id: JobId, answer: Sequence[Any]) -> Job:
    body, state, text = answer[0], JobState(answer[1].decode()), answer[2]
    header = parse_header(body[1 : body.index(b"\n")])
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
        facts["suspended"] = None
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
    facts = msgspec.structs.asdict(record_format.parse_end_record(first))
    del facts["outcome"], facts["state"]
    facts["run_at"] = header.due_at
    if rest:
        run_at, failures, crashes, replays, cancel = map(int, rest[0].split(b","))
        facts |= {"run_at": run_at, "failures": failures, "crashes": crashes, "replays": replays}
        facts |= {"cancel_requested": cancel == 1, "progress": _decode_text(rest[1]) if rest[1] else None}
    return facts


def decode_attempts(tries: Sequence[bytes], text: bytes | None) -> list[Attempt]:
    """Earlier attempts and the last one, if the job ended with one."""
    found = record_format.decode_readable("attempt", lambda each: _to_attempt(record_format.parse_attempt(each)), tries)
    if text is not None:
        end, _ = record_format.salvage_end_record(text)
        # A job that was cancelled between claim and start, or claimed too late, had no attempt.
        unstarted = end.outcome in (OutcomeKind.CANCELLED, OutcomeKind.EXPIRED) and end.started_at is None
        if end.outcome is not None and not unstarted:
            found.append(
                _to_attempt((end.token, end.instance, end.outcome, end.started_at, end.finished_at, end.error))
            )
    return found


def _to_attempt(facts: record_format.AttemptFacts) -> Attempt:
    token, instance, outcome, started, finished, error = facts
    times: dict[str, Any] = {"started_at": to_datetime_or_none(started), "finished_at": to_datetime(finished)}
    return Attempt(token=token, instance=instance, outcome=outcome, error=error, **times)


def decode_dead_group(
    task: bytes, error: bytes, count: int, first_at: bytes, last_at: bytes, sample: bytes
) -> DeadLetterGroup:
    """Dead letters of one task and type of error, as far as one call of `group_dead_letters` read them."""
    return DeadLetterGroup(
        task=task.decode("utf-8", "replace"),
        error=error.decode("utf-8", "replace"),
        count=count,
        first_at=to_datetime(record_format.int_or_zero(first_at)),
        last_at=to_datetime(record_format.int_or_zero(last_at)),
        sample=unpack_id(sample),
        message="",
    )


def merge_groups(known: DeadLetterGroup, further: DeadLetterGroup) -> DeadLetterGroup:
    """`further` is of a later page, which has smaller ids."""
    latest = further if further.last_at > known.last_at else known
    first_at = min(known.first_at, further.first_at)
    return msgspec.structs.replace(latest, count=known.count + further.count, first_at=first_at)
