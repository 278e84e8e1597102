"""Decodes instances and the leader as stored in Redis."""

from collections.abc import Sequence

import msgspec

from drumbeat.core.instance import Instance, InstanceState, LeaderInfo, NewInstance
from drumbeat.ids import InstanceId
from drumbeat.store.malformed import explain_fault, join_reasons, log_faults, salvage
from drumbeat.store.records import Faults, to_datetime, to_datetime_or_none
from drumbeat.store.redis.record_format import int_or_zero, pairs_to_dict

_decode_new_instance = msgspec.json.Decoder(NewInstance).decode


def decode_new_instances(records: Sequence[bytes]) -> list[NewInstance]:
    """Decode what is readable."""
    found: list[NewInstance] = []
    for record in records:
        try:
            found.append(_decode_new_instance(record))
        except (ValueError, msgspec.DecodeError) as error:
            log_faults("instance", record[:60], [("record", explain_fault("record", record, error))])
    return found


class InstanceCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the hash inst:<instance> beside its record."""

    state: InstanceState
    running: int
    refused: int
    beat: int
    started_at: int
    beat_at: int
    ended_at: int | None = None
    reason: str | None = None


def decode_instance(id: bytes, flat: Sequence[bytes]) -> tuple[Instance, Faults]:
    """Decode the hash inst:<instance>. An unreadable one says so as the reason of its end."""
    row = {name.decode("utf-8", "replace"): value for name, value in pairs_to_dict(flat).items()}
    record = row.pop("record", b"")
    faults: Faults = []
    try:
        given = _decode_new_instance(record)
    except (ValueError, msgspec.DecodeError) as error:
        values, _ = salvage(NewInstance, {"id": id.decode("utf-8", "replace")})
        given = NewInstance(**values)
        faults = [("record", explain_fault("record", record or None, error))]
    values, others = salvage(InstanceCounters, {name: _int_or_text(value) for name, value in row.items() if value})
    counts, faults = InstanceCounters(**values), faults + others
    if faults:
        log_faults("instance", given.id, faults)
    found = Instance(
        id=given.id,
        state=counts.state,
        app=given.app,
        version=given.version,
        host=given.host,
        pid=given.pid,
        roles=given.roles,
        queues=given.queues,
        tasks=given.tasks,
        concurrency=given.concurrency,
        running=counts.running,
        refused=counts.refused,
        beat=counts.beat,
        started_at=to_datetime(counts.started_at),
        beat_at=to_datetime(counts.beat_at),
        rooms={} if "left_rooms" in row else given.rooms,
        ended_at=to_datetime_or_none(counts.ended_at),
        ended_reason=join_reasons(faults) if faults else counts.reason,
    )
    return found, faults


def _int_or_text(value: bytes) -> int | str:
    """Decode a hash field: a number or a text."""
    try:
        return int(value)
    except ValueError:
        return value.decode("utf-8", "surrogateescape")


def decode_leader(answer: Sequence[bytes] | None) -> LeaderInfo | None:
    if answer is None:
        return None
    instance, term, since, until = answer
    return LeaderInfo(
        instance=InstanceId(instance.decode("utf-8", "replace")),
        term=int_or_zero(term),
        since=to_datetime(int_or_zero(since)),
        until=to_datetime(int_or_zero(until)),
    )
