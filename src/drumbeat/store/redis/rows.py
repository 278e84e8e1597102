"""The shapes in which jobs lie in Redis, and their way to our records. lua/_base.lua and lua/_ending.lua describe the texts.

Times are still integers here.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId, unpacked
from drumbeat.model.death import DeadGroup
from drumbeat.model.instance import Instance, InstanceState, LeaderInfo, NewInstance
from drumbeat.model.job import Attempt, Claimed, Ended, Failure, Job, JobState, OutcomeKind, Unique

_failure = msgspec.json.Decoder(Failure).decode
_text = msgspec.json.Decoder(str).decode
_instance = msgspec.json.Decoder(NewInstance).decode
as_json = msgspec.json.Encoder().encode

UNIQUE = {ord("-"): Unique.NO, ord("k"): Unique.NO, ord("l"): Unique.LIVE, ord("p"): Unique.PENDING}


moment = from_us


def moment_or_none(us: int | None) -> datetime | None:
    return None if us is None else moment(us)


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What a body says before its arguments."""

    created_at: int
    due_at: int
    task: str
    queue: str
    priority: int
    key: str | None
    signature: str
    retries: int | None
    timeout: int | None
    crash_limit: int
    on_dead: str | None
    tenant: str
    schedule: str | None = None
    """Of no schedule: not there, or empty where a trace follows."""
    trace: str | None = None


class Done(msgspec.Struct, frozen=True, array_like=True):
    """The first line of how a job ended."""

    finished_at: int
    state: JobState
    outcome: OutcomeKind | None
    started_at: int | None
    instance: InstanceId | None
    token: int
    result: str | None = None
    result_error: str | None = None
    error: Failure | None = None


class More(msgspec.Struct, frozen=True):
    """What is known of a job beyond its body."""

    run_at: int
    token: int = 0
    failures: int = 0
    crashes: int = 0
    life: int = 0
    waits_since: int | None = None
    error: Failure | None = None
    waits_for: str | None = None


_head = msgspec.json.Decoder(Head).decode
_done = msgspec.json.Decoder(Done).decode
_attempt = msgspec.json.Decoder(tuple[int, InstanceId | None, OutcomeKind, int | None, int, Failure | None]).decode


def head(body: bytes) -> Head:
    return _head(body[1 : body.index(b"\n")])


def more(text: bytes) -> More:
    facts, error, waits_for = text.split(b"\n", 2)
    run_at, token, failures, crashes, life, since = facts.split(b",")
    return More(
        run_at=int(run_at),
        token=int(token),
        failures=int(failures),
        crashes=int(crashes),
        life=int(life),
        waits_since=int(since) if since else None,
        error=_failure(error) if error else None,
        waits_for=waits_for.decode() if waits_for else None,
    )


Hint = tuple[bytes, str]
"""What a success need not ask again: the bytes of the id, and the task, or nothing if its end frees something."""


def claimed(
    now: int,
    ids: Sequence[bytes],
    bodies: Sequence[bytes],
    mores: Sequence[bytes | None],
    hints: dict[JobId, Hint],
) -> list[Claimed]:
    """Jobs as the script gave them; each has the token that the script has given it. Adds a hint for each."""
    jobs: list[Claimed] = []
    for number, body in enumerate(bodies):
        end = body.index(b"\n")
        of = _head(body[1:end])
        raw = ids[number]
        id = unpacked(raw)
        hints[id] = (raw, of.task if of.key is None and not of.schedule else "")
        token, run_at, failures, crashes, life, waits_since = now, of.due_at, 0, 0, 0, None
        if mores and (text := mores[number]) is not None:
            known = more(text)
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
                body[end + 1 :].decode(),
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
    return jobs


def done(text: bytes) -> Done:
    return _done(text.partition(b"\n")[0])


def ended(id: JobId, task: bytes, text: bytes) -> Ended | None:
    """None for a live job."""
    if not text:
        return None
    end = done(text)
    return Ended(
        id=id,
        task=task.decode(),
        state=end.state,
        result=end.result,
        result_error=end.result_error,
        error=end.error,
    )


def job(id: JobId, answer: Sequence[Any]) -> Job:
    """One job of the script `inspect_records`."""
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
    facts = msgspec.structs.asdict(_done(first))
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
        token, instance, outcome, started_at, finished_at, error = _attempt(each)
        found.append(_run(token, instance, outcome, started_at, finished_at, error))
    if text is not None:
        end = done(text)
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


def new_instance(record: bytes) -> NewInstance:
    return _instance(record)


def instance(flat: Sequence[bytes]) -> Instance:
    """The hash inst:<instance>."""
    row = pairs(flat)
    given = new_instance(row[b"record"])
    ended_at, why = row.get(b"ended_at"), row.get(b"why")
    return Instance(
        id=given.id,
        state=InstanceState(row[b"state"].decode()),
        app=given.app,
        version=given.version,
        host=given.host,
        pid=given.pid,
        roles=given.roles,
        queues=given.queues,
        tasks=given.tasks,
        concurrency=given.concurrency,
        running=int(row[b"running"]),
        refused=int(row[b"refused"]),
        beat=int(row[b"beat"]),
        started_at=moment(int(row[b"started_at"])),
        beat_at=moment(int(row[b"beat_at"])),
        rooms={} if b"left_rooms" in row else given.rooms,
        ended_at=moment(int(ended_at)) if ended_at else None,
        ended_why=None if why is None else why.decode(),
    )


def pairs(flat: Sequence[Any]) -> dict[bytes, Any]:
    """Names and values that came one after the other."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


class Group(msgspec.Struct, frozen=True):
    """What dead letters of one task and type of error have in common, as far as it was looked at."""

    count: int
    first_at: int
    last_at: int
    sample: bytes

    def record(self, task: bytes, error: bytes, sample: Job | None) -> DeadGroup:
        """`sample` None: somebody has replayed it meanwhile."""
        return DeadGroup(
            task=task.decode(),
            error=error.decode(),
            count=self.count,
            first_at=moment(self.first_at),
            last_at=moment(self.last_at),
            sample=unpacked(self.sample),
            message="" if sample is None or sample.error is None else sample.error.message,
        )


def put_together(groups: dict[tuple[bytes, bytes], Group], name: tuple[bytes, bytes], facts: Sequence[Any]) -> None:
    """Add what a further look has found; earlier looks were at greater ids."""
    count, first_at, last_at, sample = facts
    group = Group(count, int(first_at), int(last_at), sample)
    if (known := groups.get(name)) is not None:
        latest = group if group.last_at > known.last_at else known
        group = Group(known.count + group.count, min(known.first_at, group.first_at), latest.last_at, latest.sample)
    groups[name] = group


def leader(answer: Sequence[bytes] | None) -> LeaderInfo | None:
    if answer is None:
        return None
    instance, term, since, until = answer
    return LeaderInfo(
        instance=InstanceId(instance.decode()),
        term=int(term),
        since=moment(int(since or 0)),
        until=moment(int(until)),
    )
