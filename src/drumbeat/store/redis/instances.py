"""Instances on Redis; the contract is in `store.protocol`.

Declaring an instance dead may create dead letters, whose follow-ups are built here and not in the script. If one is missing,
the script changes nothing and returns the job, and is called again.
"""

import logging
from collections.abc import Sequence

import msgspec

from drumbeat.core.claim import ClaimRef
from drumbeat.core.dead_letter import make_follow_up
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, Leader, NewInstance, Peer
from drumbeat.core.job import Failure
from drumbeat.core.transitions import crash_failure
from drumbeat.errors import StoreUnavailable
from drumbeat.ids import InstanceId, pack_id, unpack_id
from drumbeat.store.redis import insert, record_format, rows, schema
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.pool import RedisPool

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
            # A score may be formatted as 1.7e+15; it is exact nevertheless.
            cancel_requests=[
                ClaimRef(unpack_id(id), record_format.int_or_zero(token))
                for id, token in sorted(_pairs(cancels))
                if len(id) == 16
            ],
            blocked_on=sorted(reason.decode("utf-8", "replace") for reason in waiting),
            peers=[Peer(_instance_id(id), record_format.int_or_zero(count)) for id, count in sorted(_pairs(peers))],
            leader=Leader(instance=_instance_id(leader[0]), term=record_format.int_or_zero(leader[1]))
            if leader
            else None,
            next_fire_at=next_fire,
        )

    async def declare_dead(
        self, id: InstanceId, *, beat: int | None, started: Sequence[ClaimRef] | None, reason: str
    ) -> DeadInstanceReport:
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
                return DeadInstanceReport(declared=False)
            if state == 1:
                suspect, released, dead, cancelled = facts
                return DeadInstanceReport(
                    declared=True, crash_suspect=suspect, released=released, dead=dead, cancelled=cancelled
                )
            follow_ups |= await self._build_follow_ups(facts, error)
        raise StoreUnavailable(
            f"{self._pool.address.display_url}: the jobs of instance {id} changed {_MAX_ATTEMPTS} times"
        )

    async def deregister(self, id: InstanceId, reason: str) -> None:
        await self._pool.run("deregister_instance", id, reason)

    async def leave_rooms(self, id: InstanceId) -> None:
        await self._pool.run("leave_rooms", id)

    async def prune(self, before: int) -> int:
        forgotten: int = await self._pool.run("prune_instances", before)
        return forgotten

    async def _build_follow_ups(self, ids: Sequence[bytes], error: Failure) -> dict[bytes, list[Value]]:
        _, *answers = await self._pool.run("get_jobs", *ids)
        found: dict[bytes, list[Value]] = {}
        for id, answer in zip(ids, answers, strict=True):
            if (
                answer is not None
                and (job := make_follow_up(rows.decode_job(unpack_id(id), answer), error)) is not None
            ):
                found[id] = insert.follow_up_arguments(job)[1:]
        return found

    async def _log_durability(self) -> None:
        """Log once what the server's settings mean for acknowledged jobs."""
        if self._has_logged_durability:
            return
        safe, promise = await schema.describe_durability(self._pool)
        self._has_logged_durability = True
        log.log(logging.INFO if safe else logging.WARNING, "what the server keeps", extra={"persistence": promise})


def _instance_id(id: bytes) -> InstanceId:
    return InstanceId(id.decode("utf-8", "replace"))


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
