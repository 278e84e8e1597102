"""Rules in time, on Redis. The contract is in `store.protocol.Schedules`; each operation is one script.

What the end of a job does to its schedule is in lua/_ending.lua, which every end of a job comes by.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.ids import InstanceId, JobId, packed, unpacked
from drumbeat.model.schedule import (
    Due,
    Fire,
    Fired,
    FireOutcome,
    Firing,
    NewSchedule,
    OnceState,
    Schedule,
    ScheduleState,
    Skip,
)
from drumbeat.store.malformed import explain, salvage, tell
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.line import Value
from drumbeat.store.redis.rows import as_json
from drumbeat.store.scheduled import every, mend_schedule

_definition = msgspec.json.Decoder(NewSchedule).decode
_record = msgspec.json.Decoder(tuple[int, int, int, FireOutcome, str, int]).decode


class RedisSchedules:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def put(
        self, schedule: NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        values: list[Value] = [schedule.name, _text(revision), _text(cursor), _text(next_at), by]
        return bool(await self._link.run("schedules_put", *values, *_facts(schedule)))

    async def declare(self, names: Sequence[str]) -> list[str]:
        return [name.decode() for name in await self._link.run("schedules_declare", *names)] if names else []

    async def change(
        self,
        name: str,
        *,
        revision: int,
        state: ScheduleState,
        cursor: int | None,
        next_at: int | None,
        by: str,
        why: str,
        skipped: Skip | None = None,
    ) -> bool:
        values: list[Value] = [name, revision, state.value, _text(cursor), _text(next_at), by, why]
        if skipped is not None:
            values += _skip(skipped)
        return bool(await self._link.run("schedules_change", *values))

    async def get(self, name: str) -> Schedule | None:
        fields = await self._link.run("schedules_get", name)
        return None if fields is None else schedule(name.encode(), fields)[0]

    async def page(self, *, after: str | None = None, limit: int = 1_000, all: bool = False) -> list[Schedule]:
        found = await self._link.run("schedules_page", after or "", limit, int(all))
        return [schedule(name, fields)[0] for name, fields in found]

    async def due(self, limit: int) -> Due:
        now, next_at, shortest, found = await self._link.run("schedules_due", limit)
        schedules = [schedule(name, fields)[0] for name, fields in found]
        return Due(now=now, schedules=schedules, next_at=next_at, shortest=shortest)

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        if not firings:
            return []
        answers = await self._link.run("schedules_fire", *(value for firing in firings for value in _firing(firing)))
        return [_fired(firing.name, answer) for firing, answer in zip(firings, answers, strict=True)]

    async def rearm(self) -> int:
        count: int = await self._link.run("schedules_rearm")
        return count

    async def retire(self, silent_since: int) -> list[str]:
        return [name.decode("utf-8", "replace") for name in await self._link.run("schedules_retire", silent_since)]

    async def fires(self, name: str, *, before: int | None = None, limit: int = 100) -> list[Fire]:
        last = "+inf" if before is None else f"({before}"
        found: list[Fire] = []
        for text in await self._link.run("schedules_fires", name, last, limit):
            try:
                found.append(_fire(name, text or b""))
            except (ValueError, msgspec.DecodeError) as error:
                tell("fire", name, [("record", explain("record", text, error))])
        return found

    async def forget(self, before: int, limit: int) -> int:
        count: int = await self._link.run("schedules_forget", before, limit)
        return count

    async def once(self, key: str, instance: InstanceId) -> OnceState:
        return OnceState((await self._link.run("schedules_once", key, instance)).decode())

    async def once_done(self, key: str, instance: InstanceId) -> bool:
        return bool(await self._link.run("schedules_once_done", key, instance))


def _text(number: int | None) -> Value:
    return "" if number is None else number


def _facts(schedule: NewSchedule) -> list[Value]:
    """A definition as lua/_scheduling.lua keeps it: with the text of its jobs' bodies, ready but for the moments."""
    head = as_json([schedule.task, schedule.queue, schedule.priority])[1:-1] + b","
    options = [schedule.signature, schedule.retries, schedule.timeout, schedule.crash_limit, schedule.on_dead]
    rest = b"," + as_json([*options, "", schedule.name])[1:] + b"\n" + schedule.args.encode()
    return [
        *(as_json(schedule), schedule.task, schedule.queue, schedule.priority, head, rest),
        *(schedule.overlap.value, _text(every(schedule)), _text(schedule.end), schedule.origin.value, schedule.app),
    ]


def _skip(skip: Skip) -> list[Value]:
    return [skip.first, skip.last, skip.count, skip.reason]


def _firing(firing: Firing) -> list[Value]:
    values: list[Value] = [firing.name, int(firing.moves), firing.revision, _text(firing.cursor_before)]
    values += [_text(firing.cursor), _text(firing.next_at), len(firing.fires)]
    for moment in firing.fires:
        values += (moment.at, moment.run_at, packed(moment.job))
    values.append(len(firing.skipped))
    for skip in firing.skipped:
        values += _skip(skip)
    return values


def _fired(name: str, answer: Any) -> Fired:
    if answer == 0:
        return Fired(name=name, done=False)
    skipped, *ids = answer
    return Fired(name=name, done=True, jobs=tuple(map(unpacked, ids)), skipped=skipped)


_FIELDS = ("state", "revision", "cursor", "next_at", "current", "created_at", "changed_at", "declared_at")


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside the definition."""

    state: ScheduleState
    revision: int
    cursor: int | None = None
    next_at: int | None = None
    current: JobId | None = None
    created_at: int
    changed_at: int
    declared_at: int | None = None
    changed_by: str = ""
    why: str = ""


def schedule(name: bytes, fields: Sequence[bytes | None]) -> tuple[Schedule, list[tuple[str, str]]]:
    """The fields that lua/_showing.lua gives. One that cannot be read says so in its rule, and is never fired."""
    try:
        return _schedule(fields), []
    except (ValueError, TypeError, AttributeError, msgspec.DecodeError):
        pass
    text = name.decode("utf-8", "replace")
    definition, faults = _salvage_definition(text, fields[0])
    names = (*_FIELDS, "changed_by", "why")
    stored = {field: _stored(field, value) for field, value in zip(names, fields[1:], strict=False) if value}
    values, others = salvage(_Facts, stored)
    faults += others
    tell("schedule", text, faults)
    definition = msgspec.structs.replace(definition, **mend_schedule(faults))
    return Schedule(definition=definition, **msgspec.structs.asdict(_Facts(**values))), faults


def _salvage_definition(name: str, text: bytes | None) -> tuple[NewSchedule, list[tuple[str, str]]]:
    try:
        return _definition(text or b""), []
    except (ValueError, msgspec.DecodeError) as error:
        try:
            stored = msgspec.json.decode(text or b"")
        except (ValueError, msgspec.DecodeError):
            stored = None
        if not isinstance(stored, dict):
            values, _ = salvage(NewSchedule, {})
            return NewSchedule(**values | {"name": name}), [("definition", explain("definition", text, error))]
        values, faults = salvage(NewSchedule, stored)
        return NewSchedule(**values | {"name": name}), faults


def _stored(field: str, value: bytes) -> Any:
    if field == "current":
        return unpacked(value) if len(value) == 16 else value
    try:
        return int(value)
    except ValueError:
        return value.decode("utf-8", "surrogateescape")


def _schedule(fields: Sequence[Any]) -> Schedule:
    definition, state, revision, cursor, next_at, current, created_at, changed_at, declared_at, by, why = fields
    return Schedule(
        definition=_definition(definition),
        state=ScheduleState(state.decode()),
        revision=int(revision),
        cursor=_number(cursor),
        next_at=_number(next_at),
        current=unpacked(current) if current else None,
        created_at=int(created_at),
        changed_at=int(changed_at),
        declared_at=_number(declared_at),
        changed_by=by.decode(),
        why=why.decode(),
    )


def _number(text: bytes) -> int | None:
    return int(text) if text else None


def _fire(name: str, text: bytes) -> Fire:
    """A text that lua/_scheduling.lua: record_fire has made."""
    start = 17 if text.startswith(b"f") else 1
    at, last, count, outcome, reason, recorded_at = _record(text[start:])
    return Fire(
        schedule=name,
        at=at,
        last=last,
        count=count,
        outcome=outcome,
        reason=reason,
        job=unpacked(text[1:start]) if start > 1 else None,
        recorded_at=recorded_at,
    )
