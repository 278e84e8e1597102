"""Parses the texts that jobs are stored in on Redis, also damaged ones as far as possible.

lua/_base.lua and lua/_transitions.lua describe them.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.core.job import Failure, JobState, OutcomeKind
from drumbeat.ids import InstanceId
from drumbeat.store.malformed import UNREADABLE_NAME, explain_fault, read_failure, salvage
from drumbeat.store.records import Faults


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
    tenant: str
    schedule: str | None = None
    """None of no schedule, or "" where another field follows."""
    trace: str | None = None


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


parse_header = msgspec.json.Decoder(JobHeader).decode
parse_end_record = msgspec.json.Decoder(EndRecord).decode
parse_attempt = msgspec.json.Decoder(tuple[int, InstanceId | None, OutcomeKind, int | None, int, Failure | None]).decode


def header_of_body(body: bytes) -> JobHeader:
    return parse_header(body[1 : body.index(b"\n")])


_LIVE_STATE = re.compile(rb"(-?\d+),(\d+),(\d+),(\d+),(\d+),(\d*)\n")
"""As parse_live_state in lua/_base.lua, which ignores what it cannot read: so token and run_at are the same here."""


def parse_live_state(text: bytes) -> LiveState:
    """Raises:
    ValueError: it cannot be read.
    """
    facts = _LIVE_STATE.match(text)
    error, end, blocked_on = (b"", b"", b"") if facts is None else text[facts.end() :].partition(b"\n")
    if facts is None or not end:
        raise ValueError("not the numbers, the error and the wait of a job")
    run_at, token, failures, crashes, replays, since = facts.groups()
    return LiveState(
        run_at=int(run_at),
        token=int(token),
        failures=int(failures),
        crashes=int(crashes),
        replays=int(replays),
        blocked_since=int(since) if since else None,
        error=read_failure(error) if error else None,
        blocked_on=blocked_on.decode() if blocked_on else None,
    )


def salvage_header(body: bytes) -> tuple[JobHeader, str, Faults]:
    """Header and args of a body, as far as they can be read."""
    first, end, rest = body[1:].partition(b"\n")
    faults: Faults = []
    try:
        stored = msgspec.json.decode(first)
        values, faults = salvage(JobHeader, stored if isinstance(stored, list) else [])
    except (ValueError, msgspec.DecodeError) as error:
        values, _ = salvage(JobHeader, [])
        faults = [("body", explain_fault("body", body, error))]
    names = {field: values[field] or UNREADABLE_NAME for field in ("task", "queue")}
    try:
        args = rest.decode()
    except UnicodeDecodeError as error:
        args = rest.decode("utf-8", "replace")
        faults.append(("args", explain_fault("args", rest, error)))
    if not end and not faults:
        faults.append(("body", "it has no arguments"))
    return JobHeader(**values | names), args, faults


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
    except (ValueError, msgspec.DecodeError) as error:
        try:
            stored = msgspec.json.decode(first)
        except (ValueError, msgspec.DecodeError):
            stored = None
        if not isinstance(stored, list):
            return EndRecord(0, JobState.DEAD, None, None, None, 0), [("end", explain_fault("end", first, error))]
        values, faults = salvage(EndRecord, stored)
        if any(field == "state" for field, _ in faults):
            values["state"] = JobState.DEAD
        return EndRecord(**values), faults


def pairs_to_dict(flat: Sequence[Any]) -> dict[bytes, Any]:
    """A dict of alternating names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def int_or_zero(text: bytes | None) -> int:
    try:
        return int(float(text or 0))
    except (ValueError, OverflowError):
        return 0
