"""Parses the texts that jobs are stored in on Redis, also damaged ones as far as possible.

lua/_base.lua and lua/_transitions.lua describe them.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from drumbeat.core.job import Failure, JobState, OutcomeKind
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.malformed import UNREADABLE_NAME, Salvaged, explain_fault, log_faults, read_failure, salvage
from drumbeat.store.records import Faults

T = TypeVar("T")


class JobHeader(msgspec.Struct, frozen=True, array_like=True):
    """The part of a body before the arguments. Append new fields: jobs in Redis have this order."""

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
    group: str
    schedule: str | None = None
    """None of no schedule, or "" where another field follows."""
    trace: str | None = None
    expires_at: int | str | None = None
    """A time (µs), or "+" and how long after due_at, which only the server knows when it stores the job: `resolve_expiry`."""
    parent: JobId | None = None
    workflow: str | None = None
    lane: str = ""


class EndRecord(msgspec.Struct, frozen=True, array_like=True):
    """The first line of the record of a job's end."""

    finished_at: int
    state: JobState
    outcome: OutcomeKind | None
    started_at: int | None
    instance: InstanceId | None
    token: int
    result: str | None = None
    result_error: str | None = None
    error: Failure | None = None


class LiveState(msgspec.Struct, frozen=True):
    """The changing part of a live job."""

    run_at: int
    token: int = 0
    failures: int = 0
    crashes: int = 0
    replays: int = 0
    blocked_since: int | None = None
    error: Failure | None = None
    blocked_on: str | None = None
    suspended: str | None = None
    """Empty: it has been before, and is not now."""
    open_parents: int | None = None
    binds: bool = False


_decode_header = msgspec.json.Decoder(JobHeader).decode


def parse_header(text: bytes) -> JobHeader:
    """Raises:
    ValueError, msgspec.DecodeError: it cannot be read.
    """
    header = _decode_header(text)
    return header if header.expires_at is None else resolve_expiry(header)


def resolve_expiry(header: JobHeader) -> JobHeader:
    """With expires_at as a time."""
    if isinstance(header.expires_at, str):
        after = re.fullmatch(r"\+(\d+)", header.expires_at)
        return msgspec.structs.replace(
            header, expires_at=None if after is None else header.due_at + int(after.group(1))
        )
    return header


parse_end_record = msgspec.json.Decoder(EndRecord).decode
AttemptFacts = tuple[int, InstanceId | None, OutcomeKind, int | None, int, Failure | None]
"""Token, instance, outcome, started_at, finished_at and error of an attempt."""
parse_attempt = msgspec.json.Decoder(AttemptFacts).decode


_LIVE_STATE = re.compile(rb"(-?\d+),(\d+),(\d+),(\d+),(\d+),(\d*)(?:,(\d+)(b?))?\n")
"""As parse_live_state in lua/_base.lua, which ignores what it cannot read: so token and run_at are the same here."""


def parse_live_state(text: bytes) -> LiveState:
    """Raises:
    ValueError: it cannot be read.
    """
    facts = _LIVE_STATE.match(text)
    error, end, blocked_on = (b"", b"", b"") if facts is None else text[facts.end() :].partition(b"\n")
    if facts is None or not end:
        raise ValueError("not the numbers, the error and the wait of a job")
    run_at, token, failures, crashes, replays, since, open_parents, binds = facts.groups()
    blocked_on, has_suspended, suspended = blocked_on.partition(b"\n")
    return LiveState(
        run_at=int(run_at),
        token=int(token),
        failures=int(failures),
        crashes=int(crashes),
        replays=int(replays),
        blocked_since=int(since) if since else None,
        error=read_failure(error) if error else None,
        blocked_on=blocked_on.decode() if blocked_on else None,
        suspended=suspended.decode() if has_suspended else None,
        open_parents=None if open_parents is None else int(open_parents),
        binds=bool(binds),
    )


def salvage_json(record: type[msgspec.Struct], text: bytes | None, field: str) -> Salvaged:
    """Read a JSON array or object field by field. If it is none, all values are neutral and `field` has the fault."""
    try:
        stored: Any = msgspec.json.decode(text or b"", type=list if record.__struct_config__.array_like else dict)
    except (ValueError, msgspec.DecodeError) as error:
        return Salvaged(salvage(record, ()).values, [(field, explain_fault(field, text, error))])
    return salvage(record, stored)


def salvage_header(body: bytes) -> tuple[JobHeader, str, Faults]:
    """Header and args of a body, as far as they can be read."""
    first, end, rest = body[1:].partition(b"\n")
    values, faults = salvage_json(JobHeader, first, "body")
    names = {field: values[field] or UNREADABLE_NAME for field in ("task", "queue")}
    try:
        args = rest.decode()
    except UnicodeDecodeError as error:
        args = rest.decode("utf-8", "replace")
        faults.append(("args", explain_fault("args", rest, error)))
    if not end and not faults:
        faults.append(("body", "it has no arguments"))
    return resolve_expiry(JobHeader(**values | names)), args, faults


def salvage_live_state(text: bytes | None, due_at: int) -> tuple[LiveState, Faults]:
    if text is None:
        return LiveState(run_at=due_at), []
    try:
        return parse_live_state(text), []
    except ValueError as error:
        return LiveState(run_at=due_at), [("live_state", explain_fault("live_state", text, error))]


def salvage_end_record(text: bytes) -> tuple[EndRecord, Faults]:
    first = text.partition(b"\n")[0]
    try:
        return parse_end_record(first), []
    except (ValueError, msgspec.DecodeError):
        values, faults = salvage_json(EndRecord, first, "end")
    if any(field in ("state", "end") for field, _ in faults):
        values["state"] = JobState.DEAD
    return EndRecord(**values), faults


def pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Alternating names and values as pairs."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def pairs_to_dict(flat: Sequence[Any]) -> dict[bytes, Any]:
    return dict(pairs(flat))


def decode_readable(
    kind: str, decode: Callable[[bytes], T], texts: Iterable[bytes], name: str | None = None
) -> list[T]:
    """Decode what is readable, and log the rest as `name`."""
    found: list[T] = []
    for text in texts:
        try:
            found.append(decode(text))
        except (ValueError, msgspec.DecodeError) as error:
            log_faults(kind, name or text, [("record", explain_fault("record", text, error))])
    return found


def int_or_zero(text: bytes | None) -> int:
    try:
        return int(float(text or 0))
    except (ValueError, OverflowError):
        return 0
