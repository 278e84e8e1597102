"""The texts in which jobs lie in Redis, read as they should be, and as far as they can be. lua/_base.lua and lua/_ending.lua
describe them.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.ids import InstanceId
from drumbeat.model.job import Failure, JobState, OutcomeKind
from drumbeat.store.malformed import UNREADABLE_NAME, explain, read_failure, salvage
from drumbeat.store.records import Faults


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


read_head = msgspec.json.Decoder(Head).decode
read_done = msgspec.json.Decoder(Done).decode
read_attempt = msgspec.json.Decoder(tuple[int, InstanceId | None, OutcomeKind, int | None, int, Failure | None]).decode


def head(body: bytes) -> Head:
    return read_head(body[1 : body.index(b"\n")])


_MORE = re.compile(rb"(-?\d+),(\d+),(\d+),(\d+),(\d+),(\d*)\n")
"""As lua/_base.lua: more_of. What that cannot read is as if it were not there, so token and moment are the same here."""


def more(text: bytes) -> More:
    """Raises:
    ValueError: it cannot be read.
    """
    facts = _MORE.match(text)
    error, end, waits_for = (b"", b"", b"") if facts is None else text[facts.end() :].partition(b"\n")
    if facts is None or not end:
        raise ValueError("not the numbers, the error and the wait of a job")
    run_at, token, failures, crashes, life, since = facts.groups()
    return More(
        run_at=int(run_at),
        token=int(token),
        failures=int(failures),
        crashes=int(crashes),
        life=int(life),
        waits_since=int(since) if since else None,
        error=read_failure(error) if error else None,
        waits_for=waits_for.decode() if waits_for else None,
    )


def salvage_head(body: bytes) -> tuple[Head, str, Faults]:
    """What can be read of a body: its head and args."""
    first, end, rest = body[1:].partition(b"\n")
    faults: Faults = []
    try:
        stored = msgspec.json.decode(first)
        values, faults = salvage(Head, stored if isinstance(stored, list) else [])
    except (ValueError, msgspec.DecodeError) as error:
        values, _ = salvage(Head, [])
        faults = [("body", explain("body", body, error))]
    names = {field: values[field] or UNREADABLE_NAME for field in ("task", "queue")}
    try:
        args = rest.decode()
    except UnicodeDecodeError as error:
        args = rest.decode("utf-8", "replace")
        faults.append(("args", explain("args", rest, error)))
    if not end and not faults:
        faults.append(("body", "it has no arguments"))
    return Head(**values | names), args, faults


def salvage_more(text: bytes | None, due_at: int) -> tuple[More, Faults]:
    if text is None:
        return More(run_at=due_at), []
    try:
        return more(text), []
    except ValueError as error:
        return More(run_at=due_at), [("more", explain("more", text, error))]


def salvage_done(text: bytes) -> tuple[Done, Faults]:
    first = text.partition(b"\n")[0]
    try:
        return read_done(first), []
    except (ValueError, msgspec.DecodeError) as error:
        try:
            stored = msgspec.json.decode(first)
        except (ValueError, msgspec.DecodeError):
            stored = None
        if not isinstance(stored, list):
            return Done(0, JobState.DEAD, None, None, None, 0), [("end", explain("end", first, error))]
        values, faults = salvage(Done, stored)
        if any(field == "state" for field, _ in faults):
            values["state"] = JobState.DEAD
        return Done(**values), faults


def pairs(flat: Sequence[Any]) -> dict[bytes, Any]:
    """Names and values that came one after the other."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def number_or_0(text: bytes | None) -> int:
    try:
        return int(float(text or 0))
    except (ValueError, OverflowError):
        return 0
