"""Audit entries on Redis; the contract is in `store.protocol`. Each operation is one script. A search is several short calls,
so that it never blocks the server."""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.core import audit
from drumbeat.core.audit import AuditEntry, NewAuditEntry
from drumbeat.store.malformed import explain_fault, join_reasons, log_faults
from drumbeat.store.records import to_datetime
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import pairs_to_dict
from drumbeat.store.redis.rows import encode_json

_MAX_SCANNED = 500
"""Entries that one call examines."""
_new_act = msgspec.json.Decoder(NewAuditEntry).decode


class RedisAudit:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool

    async def begin(self, act: NewAuditEntry, *, within_us: int = audit.REQUEST_KEY_TTL_US) -> AuditEntry | None:
        earlier = await self._pool.run("begin_act", act.id, act.who, act.request_key or "", within_us, encode_json(act))
        return None if earlier is None else decode_act(*earlier)[0]

    async def end(self, id: str, *, touched: int, outcome: str, answer: str | None) -> None:
        kept = audit.drop_long_answer(answer)
        await self._pool.run("end_act", id, touched, outcome, *([] if kept is None else [kept]))

    async def report_progress(self, id: str, *, touched: int, matched: int | None) -> str | None:
        by: bytes | None = await self._pool.run("report_act_progress", id, touched, "" if matched is None else matched)
        return None if by is None else by.decode()

    async def request_stop(self, id: str, by: str) -> bool:
        return bool(await self._pool.run("request_act_stop", id, by))

    async def get(self, id: str) -> AuditEntry | None:
        flat = await self._pool.command("HGETALL", self._pool.keys.act(id))
        return decode_act(id.encode(), flat)[0] if flat else None

    async def list_page(self, query: audit.AuditFilter = audit.ALL_ENTRIES) -> list[AuditEntry]:
        found: list[AuditEntry] = []
        last: str | bytes = query.before or ""
        index = "audit_unended" if query.unended else "audit"
        while len(found) < query.limit:
            wanted = (query.limit - len(found), _MAX_SCANNED, query.who or "", query.verb or "", query.target or "")
            last, *acts = await self._pool.run("list_acts", last, *wanted, index)
            if not last:
                break
            found += [decode_act(id, flat)[0] for id, flat in acts]
        return found

    async def prune(self, before: int, limit: int) -> int:
        return int(await self._pool.run("prune_acts", before, limit))


def decode_act(id: bytes, flat: Sequence[bytes]) -> tuple[AuditEntry, list[tuple[str, str]]]:
    """Decode the hash act:<id>. An unreadable one says so as its outcome."""
    try:
        return _decode_act(flat), []
    except (ValueError, KeyError, msgspec.DecodeError) as error:
        name = id.decode("utf-8", "replace")
        faults = [("record", explain_fault("record", dict(pairs_to_dict(flat)).get(b"act"), error))]
        log_faults("act", name, faults)
        nothing = dict.fromkeys(("who", "role", "via", "verb", "target", "reason"), "")
        facts: dict[str, Any] = {"id": name, "at": to_datetime(0), **nothing}
        return AuditEntry(**facts, outcome=f"undecodable: {join_reasons(faults)}"), faults


def _decode_act(flat: Sequence[bytes]) -> AuditEntry:
    """Decode the hash act:<id>."""
    row = pairs_to_dict(flat)
    facts = msgspec.structs.asdict(_new_act(row[b"act"]))
    for name in ("done_at", "reported_at"):
        if (at := row.get(name.encode())) is not None:
            facts[name] = to_datetime(int(at))
    for name in ("touched", "matched"):
        if number := row.get(name.encode()):
            facts[name] = int(number)
    for name in ("outcome", "answer", "stopped_by"):
        if (text := row.get(name.encode())) is not None:
            facts[name] = text.decode()
    return AuditEntry(at=to_datetime(int(row[b"at"])), **facts)
