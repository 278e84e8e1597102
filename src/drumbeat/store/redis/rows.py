"""The way of jobs in Redis to our records. The texts in which they lie are read by texts.py."""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.ids import InstanceId, JobId, unpacked
from drumbeat.model.death import DeadGroup
from drumbeat.model.job import Attempt, Claimed, Ended, Failure, Job, JobState, Malformed, OutcomeKind, Unique
from drumbeat.store.malformed import explain, quoted, read_value, reasons, tell, undecodable
from drumbeat.store.records import Faults, moment, moment_or_none
from drumbeat.store.redis.texts import (
    Head,
    More,
    head,
    more,
    number_or_0,
    read_attempt,
    read_done,
    read_head,
    salvage_done,
    salvage_head,
    salvage_more,
)

_text = msgspec.json.Decoder(str).decode
as_json = msgspec.json.Encoder().encode

_FLAGS = (b"-", b"k", b"l", b"p")
UNIQUE = {ord("-"): Unique.NO, ord("k"): Unique.NO, ord("l"): Unique.LIVE, ord("p"): Unique.PENDING}

Hint = tuple[bytes, str]
"""What a success need not ask again: the bytes of the id, and the task, or nothing if its end frees something."""


def claimed(
    now: int,
    ids: Sequence[bytes],
    bodies: Sequence[bytes],
    mores: Sequence[bytes | None],
    hints: dict[JobId, Hint],
) -> tuple[list[Claimed], list[Malformed]]:
    """Jobs as the script gave them; each has the token that the script has given it. Adds a hint for each."""
    jobs: list[Claimed] = []
    malformed: list[Malformed] = []
    for number, body in enumerate(bodies):
        raw = ids[number]
        id = unpacked(raw)
        text = mores[number] if mores else None
        try:
            end = body.index(b"\n")
            of = read_head(body[1:end])
            args = body[end + 1 :].decode()
            known = None if text is None else more(text)
        except (ValueError, msgspec.DecodeError):
            malformed.append(_malformed(now, id, body, text))
            continue
        hints[id] = (raw, of.task if of.key is None and not of.schedule else "")
        token, run_at, failures, crashes, life, waits_since = now, of.due_at, 0, 0, 0, None
        if known is not None:
            token, run_at, waits_since = max(now, known.token + 1), known.run_at, known.waits_since
            failures, crashes, life = known.failures, known.crashes, known.life
        jobs.append(
            Claimed(
                id,
                token,
                of.task,
                of.queue,
                of.priority,
                of.key,
                args,
                of.signature,
                of.created_at,
                of.due_at,
                run_at,
                failures,
                crashes,
                of.retries,
                of.timeout,
                of.crash_limit,
                of.on_dead,
                life,
                waits_since,
                of.trace,
            )
        )
    return jobs, malformed


def _malformed(now: int, id: JobId, body: bytes, text: bytes | None) -> Malformed:
    of, args, faults = salvage_head(body)
    known, others = salvage_more(text, of.due_at)
    faults += others
    tell("job", id, faults)
    job = Claimed(
        id,
        max(now, known.token + 1),
        *(of.task, of.queue, of.priority, of.key, args, of.signature, of.created_at, of.due_at),
        *(known.run_at, known.failures, known.crashes, of.retries, of.timeout, of.crash_limit, of.on_dead),
        *(known.life, known.waits_since, of.trace),
    )
    return Malformed(job, reasons(faults))


def ended(id: JobId, task: bytes, text: bytes) -> Ended | None:
    """None for a live job."""
    if not text:
        return None
    end, faults = salvage_done(text)
    if faults and end.state is JobState.SUCCEEDED:
        end = msgspec.structs.replace(end, result=None, result_error=reasons(faults))
    elif faults:
        end = msgspec.structs.replace(end, error=undecodable(reasons(faults)))
    return Ended(
        id=id,
        task=task.decode("utf-8", "replace"),
        state=end.state,
        result=end.result,
        result_error=end.result_error,
        error=end.error,
    )


def job(id: JobId, answer: Sequence[Any]) -> Job:
    """One job of the script `inspect_records`. One that cannot be read has that as its error."""
    try:
        return _job(id, answer)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, msgspec.DecodeError):
        job, faults = _salvage_job(id, answer)
    tell("job", id, faults)
    return job


def faults_of(id: JobId, answer: Sequence[Any]) -> Faults:
    """What cannot be read of a job of `inspect_records`."""
    try:
        _job(id, answer)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, msgspec.DecodeError):
        return _salvage_job(id, answer)[1]
    return []


def _salvage_job(id: JobId, answer: Sequence[Any]) -> tuple[Job, Faults]:
    body, text = answer[0], answer[2]
    state, _ = read_value("state", answer[1].decode("utf-8", "replace"), JobState)
    of, args, faults = salvage_head(body)
    if body[:1] not in _FLAGS:
        faults.append(("key", f"{quoted(body[:1])} is none of the marks of a body"))
    facts: dict[str, Any]
    if state in (JobState.PENDING, JobState.RUNNING):
        known, others = salvage_more(text, of.due_at)
        facts = {"run_at": moment(known.run_at), "token": known.token, "failures": known.failures}
        facts |= {"crashes": known.crashes, "life": known.life, "waits_for": known.waits_for}
    else:
        end, others = salvage_done(text or b"")
        facts = {"run_at": moment(of.due_at), "token": end.token, "instance": end.instance, "result": end.result}
        facts |= {"started_at": moment_or_none(end.started_at), "finished_at": moment(end.finished_at)}
    faults += others
    faults = faults or [("record", "its parts do not fit together")]
    job = Job(
        id=id,
        **{name: getattr(of, name) for name in ("task", "queue", "priority", "key", "signature", "retries", "trace")},
        state=state,
        args=args,
        created_at=moment(of.created_at),
        due_at=moment(of.due_at),
        timeout=None if of.timeout is None else of.timeout / 1_000_000,
        crash_limit=of.crash_limit,
        on_dead=of.on_dead,
        tenant=of.tenant,
        schedule=of.schedule or None,
        error=undecodable(reasons(faults)),
        **facts,
    )
    return job, faults


def _job(id: JobId, answer: Sequence[Any]) -> Job:
    body, state, text = answer[0], JobState(answer[1].decode()), answer[2]
    of = head(body)
    facts: dict[str, Any]
    if state in (JobState.PENDING, JobState.RUNNING):
        known = More(run_at=of.due_at) if text is None else more(text)
        facts = {"run_at": known.run_at, "token": known.token, "failures": known.failures, "crashes": known.crashes}
        facts |= {"life": known.life, "waits_for": known.waits_for, "error": known.error}
    else:
        facts = _ended_facts(of, text)
    if state is JobState.RUNNING:
        instance, token, cancel, progress = answer[3:]
        facts |= {"instance": InstanceId(instance.decode()), "token": token, "started_at": token}
        facts |= {"cancel_requested": cancel == 1, "progress": None if progress is None else _text(progress)}
    facts["run_at"] = moment(facts["run_at"])
    for name in ("started_at", "finished_at"):
        facts[name] = moment_or_none(facts.get(name))
    return Job(
        id=id,
        task=of.task,
        queue=of.queue,
        state=state,
        priority=of.priority,
        key=of.key,
        args=body[body.index(b"\n") + 1 :].decode(),
        signature=of.signature,
        created_at=moment(of.created_at),
        due_at=moment(of.due_at),
        retries=of.retries,
        timeout=None if of.timeout is None else of.timeout / 1_000_000,
        crash_limit=of.crash_limit,
        unique=UNIQUE[body[0]],
        on_dead=of.on_dead,
        tenant=of.tenant,
        schedule=of.schedule or None,
        trace=of.trace,
        **facts,
    )


def _ended_facts(of: Head, text: bytes) -> dict[str, Any]:
    first, *rest = text.split(b"\n")
    facts = msgspec.structs.asdict(read_done(first))
    del facts["outcome"], facts["state"]
    facts["run_at"] = of.due_at
    if rest:
        run_at, failures, crashes, life, cancel = map(int, rest[0].split(b","))
        facts |= {"run_at": run_at, "failures": failures, "crashes": crashes, "life": life}
        facts |= {"cancel_requested": cancel == 1, "progress": _text(rest[1]) if rest[1] else None}
    return facts


def attempts(tries: Sequence[bytes], text: bytes | None) -> list[Attempt]:
    """Earlier runs and the last one, if the job has ended by one."""
    found = []
    for each in tries:
        try:
            token, instance, outcome, started_at, finished_at, error = read_attempt(each)
        except (ValueError, msgspec.DecodeError) as broken:
            tell("attempt", each, [("record", explain("record", each, broken))])
            continue
        found.append(_run(token, instance, outcome, started_at, finished_at, error))
    if text is not None:
        end, _ = salvage_done(text)
        # One that was claimed, heard of its cancellation and never started has had no run.
        unstarted = end.outcome is OutcomeKind.CANCELLED and end.started_at is None
        if end.outcome is not None and not unstarted:
            found.append(_run(end.token, end.instance, end.outcome, end.started_at, end.finished_at, end.error))
    return found


def _run(
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
        started_at=moment_or_none(started_at),
        finished_at=moment(finished_at),
        error=error,
    )


class Group(msgspec.Struct, frozen=True):
    """What dead letters of one task and type of error have in common, as far as it was looked at."""

    count: int
    first_at: int
    last_at: int
    sample: bytes

    def record(self, task: bytes, error: bytes, sample: Job | None) -> DeadGroup:
        """`sample` None: somebody has replayed it meanwhile."""
        return DeadGroup(
            task=task.decode("utf-8", "replace"),
            error=error.decode("utf-8", "replace"),
            count=self.count,
            first_at=moment(self.first_at),
            last_at=moment(self.last_at),
            sample=unpacked(self.sample),
            message="" if sample is None or sample.error is None else sample.error.message,
        )


def put_together(groups: dict[tuple[bytes, bytes], Group], name: tuple[bytes, bytes], facts: Sequence[Any]) -> None:
    """Add what a further look has found; earlier looks were at greater ids."""
    count, first_at, last_at, sample = facts
    group = Group(count, number_or_0(first_at), number_or_0(last_at), sample)
    if (known := groups.get(name)) is not None:
        latest = group if group.last_at > known.last_at else known
        group = Group(known.count + group.count, min(known.first_at, group.first_at), latest.last_at, latest.sample)
    groups[name] = group
