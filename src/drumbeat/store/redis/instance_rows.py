"""What lies in Redis of instances and of who leads, and its way to our records."""

from collections.abc import Sequence

import msgspec

from drumbeat.ids import InstanceId
from drumbeat.model.instance import Instance, InstanceState, LeaderInfo, NewInstance
from drumbeat.store.malformed import explain, reasons, salvage, tell
from drumbeat.store.records import Faults, moment, moment_or_none
from drumbeat.store.redis.texts import number_or_0, pairs

_instance = msgspec.json.Decoder(NewInstance).decode


def new_instances(records: Sequence[bytes]) -> list[NewInstance]:
    """Those that can be read."""
    found: list[NewInstance] = []
    for record in records:
        try:
            found.append(_instance(record))
        except (ValueError, msgspec.DecodeError) as error:
            tell("instance", record[:60], [("record", explain("record", record, error))])
    return found


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the hash inst:<instance> beside its record."""

    state: InstanceState
    running: int
    refused: int
    beat: int
    started_at: int
    beat_at: int
    ended_at: int | None = None
    why: str | None = None


def instance(id: bytes, flat: Sequence[bytes]) -> tuple[Instance, Faults]:
    """The hash inst:<instance>. One that cannot be read has that as the reason of its end."""
    row = {name.decode("utf-8", "replace"): value for name, value in pairs(flat).items()}
    record = row.pop("record", b"")
    faults: Faults = []
    try:
        given = _instance(record)
    except (ValueError, msgspec.DecodeError) as error:
        values, _ = salvage(NewInstance, {"id": id.decode("utf-8", "replace")})
        given = NewInstance(**values)
        faults = [("record", explain("record", record or None, error))]
    values, others = salvage(Counts, {name: _plain(value) for name, value in row.items() if value})
    counts, faults = Counts(**values), faults + others
    if faults:
        tell("instance", given.id, faults)
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
        started_at=moment(counts.started_at),
        beat_at=moment(counts.beat_at),
        rooms={} if "left_rooms" in row else given.rooms,
        ended_at=moment_or_none(counts.ended_at),
        ended_why=reasons(faults) if faults else counts.why,
    )
    return found, faults


def _plain(value: bytes) -> int | str:
    """A number, or a text: what a field of a hash holds."""
    try:
        return int(value)
    except ValueError:
        return value.decode("utf-8", "surrogateescape")


def leader(answer: Sequence[bytes] | None) -> LeaderInfo | None:
    if answer is None:
        return None
    instance, term, since, until = answer
    return LeaderInfo(
        instance=InstanceId(instance.decode("utf-8", "replace")),
        term=number_or_0(term),
        since=moment(number_or_0(since)),
        until=moment(number_or_0(until)),
    )
