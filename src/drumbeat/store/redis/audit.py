"""The record of what people did, on Redis. The contract is in `store.protocol.Audit`. Each operation is one script; a search
that finds little is several, so that it never keeps the server from its work."""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.model.audit import REPEATS_US, Act, NewAct, kept_answer
from drumbeat.store.malformed import explain, reasons, tell
from drumbeat.store.records import moment
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.rows import as_json
from drumbeat.store.redis.texts import pairs

_LOOKED_AT = 500
"""Acts that one call looks at."""
_new_act = msgspec.json.Decoder(NewAct).decode


class RedisAudit:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def begin(self, act: NewAct, *, within: int = REPEATS_US) -> Act | None:
        earlier = await self._link.run("audit_begin", act.id, act.who, act.request_key or "", within, as_json(act))
        return None if earlier is None else act_of(*earlier)[0]

    async def end(self, id: str, *, touched: int, outcome: str, answer: str | None) -> None:
        kept = kept_answer(answer)
        await self._link.run("audit_end", id, touched, outcome, 0 if kept is None else 1, kept or "")

    async def get(self, id: str) -> Act | None:
        flat = await self._link.command("HGETALL", self._link.keys.act(id))
        return act_of(id.encode(), flat)[0] if flat else None

    async def page(
        self,
        *,
        before: str | None = None,
        limit: int = 100,
        who: str | None = None,
        verb: str | None = None,
        target: str | None = None,
    ) -> list[Act]:
        found: list[Act] = []
        last: str | bytes = before or ""
        while len(found) < limit:
            wanted = (limit - len(found), _LOOKED_AT, who or "", verb or "", target or "")
            last, *acts = await self._link.run("audit_page", last, *wanted)
            if not last:
                break
            found += [act_of(id, flat)[0] for id, flat in acts]
        return found

    async def prune(self, before: int, limit: int) -> int:
        count: int = await self._link.run("audit_prune", before, limit)
        return count


def act_of(id: bytes, flat: Sequence[bytes]) -> tuple[Act, list[tuple[str, str]]]:
    """The hash act:<id>. One that cannot be read says so as its outcome."""
    try:
        return _act(flat), []
    except (ValueError, KeyError, msgspec.DecodeError) as error:
        name = id.decode("utf-8", "replace")
        faults = [("record", explain("record", dict(pairs(flat)).get(b"act"), error))]
        tell("act", name, faults)
        nothing = dict.fromkeys(("who", "role", "via", "verb", "target", "why"), "")
        facts: dict[str, Any] = {"id": name, "at": moment(0), **nothing}
        return Act(**facts, outcome=f"undecodable: {reasons(faults)}"), faults


def _act(flat: Sequence[bytes]) -> Act:
    """The hash act:<id>."""
    row = pairs(flat)
    facts = msgspec.structs.asdict(_new_act(row[b"act"]))
    if b"done_at" in row:
        facts |= {"done_at": moment(int(row[b"done_at"])), "touched": int(row[b"touched"])}
        facts["outcome"] = row[b"outcome"].decode()
    if b"answer" in row:
        facts["answer"] = row[b"answer"].decode()
    return Act(at=moment(int(row[b"at"])), **facts)
