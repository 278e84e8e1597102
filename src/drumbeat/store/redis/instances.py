"""Instances on Redis; the contract is in `store.protocol`.

Declaring an instance dead may create dead letters, whose follow-ups are built here and not in the script. If one is missing,
the script changes nothing and returns the job, and is called again.
"""

import logging
from collections.abc import Sequence

import msgspec

from drumbeat.core import instance as model
from drumbeat.core.claim import ClaimRef
from drumbeat.core.follow_up import make_on_dead_job
from drumbeat.core.instance import HeartbeatReply, Instance, LeaderInfo, NewInstance
from drumbeat.core.job import Failure
from drumbeat.core.transitions import crash_failure
from drumbeat.errors import StoreUnavailable
from drumbeat.ids import InstanceId, pack_id
from drumbeat.store.malformed import explain_fault, join_reasons, log_faults, salvage
from drumbeat.store.records import Faults, to_datetime, to_datetime_or_none
from drumbeat.store.redis import insert, record_format, rows, schema
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.releases import follow_releases

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 8


class RedisInstances:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool
        self._has_logged_durability = False

    async def register(self, instance: NewInstance) -> None:
        await self._log_durability()
        await self._pool.run(
            "register_instance", instance.id, msgspec.json.encode(instance), *schema.new_store_fields()
        )

    async def heartbeat(self, id: InstanceId, running: int, *, lead: int | None = None) -> HeartbeatReply:
        now, *reply = await self._pool.run("record_heartbeat", id, running, "" if lead is None else lead)
        if not reply:
            return HeartbeatReply(alive=False, beat=0, now=now, running=0, cancel_requests=[], blocked_on=[], peers=[])
        beat, held, cancels, waiting, peers, leader, next_fire = reply
        return HeartbeatReply(
            alive=True,
            beat=beat,
            now=now,
            running=held,
            cancel_requests=sorted(rows.decode_claim_refs(cancels), key=lambda ref: ref.id),
            blocked_on=sorted(reason.decode("utf-8", "replace") for reason in waiting),
            peers=[
                model.Peer(_instance_id(id), record_format.int_or_zero(count))
                for id, count in sorted(record_format.pairs(peers))
            ],
            leader=model.Leader(instance=_instance_id(leader[0]), term=record_format.int_or_zero(leader[1]))
            if leader
            else None,
            next_fire_at=next_fire,
        )

    async def declare_dead(
        self, id: InstanceId, *, beat: int | None, started: Sequence[ClaimRef] | None, reason: str
    ) -> model.DeadInstanceReport:
        error = crash_failure(reason)
        known: list[Value] = [id, "" if beat is None else beat, reason, rows.encode_json(error)]
        started_arguments: list[Value] = []
        if started is not None:
            started_arguments = ["started", *(value for hold in started for value in (pack_id(hold.id), hold.token))]
        follow_ups: dict[bytes, list[Value]] = {}
        for _ in range(_MAX_ATTEMPTS):
            given = [value for job, values in follow_ups.items() for value in (job, *values)]
            state, *facts = await self._pool.run(
                "declare_instance_dead", *known, len(follow_ups), *given, *started_arguments
            )
            if state == 0:
                return model.DeadInstanceReport(declared=False)
            if state == 1:
                suspect, released, dead, cancelled, is_releasing = facts
                await follow_releases(self._pool, is_releasing)
                return model.DeadInstanceReport(
                    declared=True, crash_suspect=suspect, released=released, dead=dead, cancelled=cancelled
                )
            follow_ups |= await self._build_follow_ups(facts, error)
        raise StoreUnavailable(
            f"{self._pool.address.display_url}: the jobs of instance {id} changed {_MAX_ATTEMPTS} times"
        )

    async def deregister(self, id: InstanceId, reason: str) -> None:
        _, is_releasing = await self._pool.run("deregister_instance", id, reason)
        await follow_releases(self._pool, is_releasing)

    async def leave_rooms(self, id: InstanceId) -> None:
        await self._pool.run("leave_rooms", id)

    async def prune(self, before: int) -> int:
        return int(await self._pool.run("prune_instances", before))

    async def _build_follow_ups(self, ids: Sequence[bytes], error: Failure) -> dict[bytes, list[Value]]:
        found: dict[bytes, list[Value]] = {}
        for id, answer in await rows.load_jobs(self._pool, ids):
            if (job := make_on_dead_job(rows.decode_job(id, answer), error)) is not None:
                found[pack_id(id)] = insert.follow_up_arguments(job)
        return found

    async def _log_durability(self) -> None:
        """Log once what the server's settings mean for acknowledged jobs."""
        if self._has_logged_durability:
            return
        safe, promise = await schema.describe_durability(self._pool)
        self._has_logged_durability = True
        log.log(logging.INFO if safe else logging.WARNING, "what the server keeps", extra={"persistence": promise})


_decode_new_instance = msgspec.json.Decoder(NewInstance).decode


def decode_new_instances(records: Sequence[bytes]) -> list[NewInstance]:
    """Decode what is readable."""
    return record_format.decode_readable("instance", _decode_new_instance, records)


class InstanceCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the hash inst:<instance> beside its record."""

    state: model.InstanceState
    running: int
    refused: int
    beat: int
    started_at: int
    beat_at: int
    ended_at: int | None = None
    reason: str | None = None


def decode_instance(id: bytes, flat: Sequence[bytes]) -> tuple[Instance, Faults]:
    """Decode the hash inst:<instance>. An unreadable one says so as the reason of its end."""
    row = {name.decode("utf-8", "replace"): value for name, value in record_format.pairs_to_dict(flat).items()}
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
    facts = msgspec.structs.asdict(given) | msgspec.structs.asdict(counts)
    del facts["wake"]
    reason = facts.pop("reason")
    facts |= {name: to_datetime_or_none(facts[name]) for name in ("started_at", "beat_at", "ended_at")}
    facts |= {"rooms": {}} if "left_rooms" in row else {}
    return Instance(**facts, ended_reason=join_reasons(faults) if faults else reason), faults


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
        instance=_instance_id(instance),
        term=record_format.int_or_zero(term),
        since=to_datetime(record_format.int_or_zero(since)),
        until=to_datetime(record_format.int_or_zero(until)),
    )


def _instance_id(id: bytes) -> InstanceId:
    return InstanceId(id.decode("utf-8", "replace"))
