"""Schedules on Redis; the contract is in `store.protocol`. Each operation is one script.

What the end of a job does to its schedule is in lua/_transitions.lua, which every end of a job comes by.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from drumbeat.core import schedule
from drumbeat.core.overlap import interval_of
from drumbeat.core.schedule import NewSchedule, Schedule, ScheduleState
from drumbeat.ids import InstanceId, JobId, pack_id, unpack_id
from drumbeat.store.malformed import log_faults, salvage
from drumbeat.store.records import repaired_rule
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import decode_readable, salvage_json
from drumbeat.store.redis.releases import follow_releases
from drumbeat.store.redis.rows import encode_json

_decode_definition = msgspec.json.Decoder(NewSchedule).decode
_parse_fire = msgspec.json.Decoder(tuple[int, int, int, schedule.FireOutcome, str, int]).decode
_FIRE_FIELDS = ("at", "last", "count", "outcome", "reason", "recorded_at")
_FIRES_PER_CALL = 5_000
"""schedule.Fire records that one call may read."""


class RedisSchedules:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool

    async def put(
        self, schedule: NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        values: list[Value] = [schedule.name, _or_empty(revision), _or_empty(cursor), _or_empty(next_at), by]
        return bool(await self._pool.run("put_schedule", *values, *_definition_arguments(schedule)))

    async def declare(self, names: Sequence[str]) -> list[str]:
        return [name.decode() for name in await self._pool.run("declare_schedules", *names)] if names else []

    async def set_state(self, change: schedule.ScheduleChange) -> bool:
        values: list[Value] = [change.name, change.revision, change.state.value, _or_empty(change.cursor)]
        values += (_or_empty(change.next_at), change.by, change.reason)
        if change.skipped is not None:
            values += _skip_arguments(change.skipped)
        return bool(await self._pool.run("set_schedule_state", *values))

    async def get(self, name: str) -> Schedule | None:
        fields = await self._pool.run("get_schedule", name)
        return None if fields is None else decode_schedule(name.encode(), fields)[0]

    async def list_page(self, *, after: str | None = None, limit: int = 1_000, all: bool = False) -> list[Schedule]:
        found = await self._pool.run("list_schedules", after or "", limit, int(all))
        return [decode_schedule(name, fields)[0] for name, fields in found]

    async def get_due(self, limit: int) -> schedule.DueSchedules:
        now, next_at, shortest, found = await self._pool.run("get_due_schedules", limit)
        schedules = [decode_schedule(name, fields)[0] for name, fields in found]
        return schedule.DueSchedules(now=now, schedules=schedules, next_at=next_at, min_interval=shortest)

    async def fire(self, firings: Sequence[schedule.FireRequest]) -> list[schedule.FireResult]:
        if not firings:
            return []
        values = [value for firing in firings for value in _firing_arguments(firing)]
        is_releasing, answers = await self._pool.run("fire_schedules", *values)
        await follow_releases(self._pool, is_releasing)
        return [_decode_fired(firing.name, answer) for firing, answer in zip(firings, answers, strict=True)]

    async def advance_stalled(self) -> int:
        return int(await self._pool.run("advance_stalled_schedules"))

    async def retire_undeclared(self, undeclared_since: int) -> list[str]:
        names = await self._pool.run("retire_undeclared_schedules", undeclared_since)
        return [name.decode("utf-8", "replace") for name in names]

    async def list_fires(
        self, names: Sequence[str], *, before: int | None = None, limit: int = 100
    ) -> dict[str, list[schedule.Fire]]:
        last = "+inf" if before is None else f"({before}"
        some = max(_FIRES_PER_CALL // max(limit, 1), 1)
        found: dict[str, list[schedule.Fire]] = {}
        for start in range(0, len(names), some):
            wanted = names[start : start + some]
            for name, texts in zip(wanted, await self._pool.run("list_fires", last, limit, *wanted), strict=True):
                found[name] = decode_readable("fire", partial(_decode_fire, name), texts, name)
        return found

    async def prune_fires(self, before: int, limit: int) -> int:
        return int(await self._pool.run("prune_fires", before, limit))

    async def claim_once(self, key: str, instance: InstanceId) -> schedule.OnceState:
        return schedule.OnceState((await self._pool.run("claim_once", key, instance)).decode())

    async def complete_once(self, key: str, instance: InstanceId) -> bool:
        return bool(await self._pool.run("complete_once", key, instance))


def _or_empty(number: int | None) -> Value:
    return "" if number is None else number


def _last_fields(schedule: NewSchedule) -> list[str | None]:
    """Those of JobHeader behind the schedule: trace, when a job expires, if it does, parent, workflow, lane."""
    expiry = None if schedule.expires is None else f"+{schedule.expires}"
    if schedule.lane:
        return [None, expiry, None, None, schedule.lane]
    return [] if expiry is None else [None, expiry]


def _definition_arguments(schedule: NewSchedule) -> list[Value]:
    """Return the stored form of a definition (lua/_schedule.lua), with the body of its jobs complete but for the fire time."""
    head = encode_json([schedule.task, schedule.queue, schedule.priority])[1:-1] + b","
    options = [schedule.signature, schedule.retries, schedule.timeout, schedule.crash_limit, schedule.on_dead]
    rest = (
        b","
        + encode_json([*options, schedule.group, schedule.name, *_last_fields(schedule)])[1:]
        + b"\n"
        + schedule.args.encode()
    )
    job = (schedule.task, schedule.queue, schedule.priority, head, rest)
    rule = (schedule.overlap.value, _or_empty(interval_of(schedule)), _or_empty(schedule.end))
    return [encode_json(schedule), *job, *rule, schedule.origin.value, schedule.app]


def _skip_arguments(skip: schedule.SkippedRange) -> list[Value]:
    return [skip.first, skip.last, skip.count, skip.reason]


def _firing_arguments(firing: schedule.FireRequest) -> list[Value]:
    values: list[Value] = [firing.name, int(firing.advances), firing.revision, _or_empty(firing.expected_cursor)]
    values += [_or_empty(firing.cursor), _or_empty(firing.next_at), len(firing.fires)]
    for moment in firing.fires:
        values += (moment.at, moment.run_at, pack_id(moment.job))
    values.append(len(firing.skipped))
    for skip in firing.skipped:
        values += _skip_arguments(skip)
    return values


def _decode_fired(name: str, answer: Any) -> schedule.FireResult:
    if answer == 0:
        return schedule.FireResult(name=name, applied=False)
    skipped, *ids = answer
    return schedule.FireResult(name=name, applied=True, jobs=tuple(map(unpack_id, ids)), skipped=skipped)


class _StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Stored fields beside the definition."""

    state: ScheduleState
    revision: int
    cursor: int | None = None
    next_at: int | None = None
    current: JobId | None = None
    created_at: int
    changed_at: int
    declared_at: int | None = None
    changed_by: str = ""
    reason: str = ""


def decode_schedule(name: bytes, fields: Sequence[bytes | None]) -> tuple[Schedule, list[tuple[str, str]]]:
    """Decode the fields of lua/_schedule_fields.lua. An unreadable schedule says so in its rule and never fires."""
    try:
        return _decode_schedule(fields), []
    except (ValueError, TypeError, AttributeError, msgspec.DecodeError):
        pass
    text = name.decode("utf-8", "replace")
    definition, faults = salvage_json(NewSchedule, fields[0], "definition")
    names = _StoredSchedule.__struct_fields__
    stored = {field: _decode_field(field, value) for field, value in zip(names, fields[1:], strict=False) if value}
    values, others = salvage(_StoredSchedule, stored)
    faults += others
    log_faults("schedule", text, faults)
    repaired = NewSchedule(**definition | {"name": text} | repaired_rule(faults))
    return Schedule(definition=repaired, **msgspec.structs.asdict(_StoredSchedule(**values))), faults


def _decode_field(field: str, value: bytes) -> Any:
    if field == "current":
        return unpack_id(value) if len(value) == 16 else value
    try:
        return int(value)
    except ValueError:
        return value.decode("utf-8", "surrogateescape")


def _decode_schedule(fields: Sequence[Any]) -> Schedule:
    definition, state, revision, cursor, next_at, current, created_at, changed_at, declared_at, by, reason = fields
    return Schedule(
        definition=_decode_definition(definition),
        state=ScheduleState(state.decode()),
        revision=int(revision),
        cursor=_int_or_none(cursor),
        next_at=_int_or_none(next_at),
        current=unpack_id(current) if current else None,
        created_at=int(created_at),
        changed_at=int(changed_at),
        declared_at=_int_or_none(declared_at),
        changed_by=by.decode(),
        reason=reason.decode(),
    )


def _int_or_none(text: bytes) -> int | None:
    return int(text) if text else None


def _decode_fire(name: str, text: bytes | None) -> schedule.Fire:
    """Decode a record of lua/_schedule.lua: record_fire."""
    text = text or b""
    start = 17 if text.startswith(b"f") else 1
    facts: dict[str, Any] = dict(zip(_FIRE_FIELDS, _parse_fire(text[start:]), strict=True))
    return schedule.Fire(schedule=name, job=unpack_id(text[1:start]) if start > 1 else None, **facts)
