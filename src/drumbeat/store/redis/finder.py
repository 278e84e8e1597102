"""Finds unreadable records for the doctor, examining a bounded number of each kind."""

from collections.abc import Iterable

from drumbeat.core.job import LIVE_STATES, JobState
from drumbeat.store.malformed import Fault, explain_fault, quote
from drumbeat.store.redis import instances, record_format, rows
from drumbeat.store.redis.audit import decode_act
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.schedules import decode_schedule

_MAX_BUCKETS = 1_000


async def find_malformed(pool: RedisPool, job_ids: Iterable[bytes], limit: int) -> list[Fault]:
    found: list[Fault] = []
    for id, answer in await rows.load_jobs(pool, list(job_ids)):
        job, faults = rows.read_job(id, answer)
        kind = "dead letter" if job.state is JobState.DEAD else "job" if job.state in LIVE_STATES else "ended job"
        found += _to_faults(kind, id.encode(), faults)
    for id, row in record_format.pairs(await pool.run("list_instances", 1))[:limit]:
        found += _to_faults("instance", id, instances.decode_instance(id, row)[1])
    for name, fields in await pool.run("list_schedules", "", limit, 1):
        found += _to_faults("schedule", name, decode_schedule(name, fields)[1])
    for id, row in (await pool.run("list_acts", "", limit, limit, "", "", "", "audit"))[1:]:
        found += _to_faults("act", id, decode_act(id, row)[1])
    return list(dict.fromkeys(found + await _find_buckets(pool)))


async def _find_buckets(pool: RedisPool) -> list[Fault]:
    """Return keys of many jobs that have the wrong type."""
    names: list[bytes] = await pool.command("ZREVRANGE", pool.keys.buckets, 0, _MAX_BUCKETS - 1)
    job_keys = [pool.keys.jobs(name.decode("utf-8", "replace")) for name in names]
    types = await pool.pipeline([("TYPE", place) for place in job_keys]) if job_keys else []
    return [
        Fault("key", place, "type", explain_fault("type", type, ValueError("a hash is expected")))
        for place, type in zip(job_keys, types, strict=True)
        if type not in (b"hash", b"none", "hash", "none")
    ]


def _to_faults(kind: str, id: bytes, faults: Iterable[tuple[str, str]]) -> list[Fault]:
    name = id.decode("utf-8", "surrogateescape")
    return [Fault(kind, name if name.isprintable() else quote(id), field, reason) for field, reason in faults]
