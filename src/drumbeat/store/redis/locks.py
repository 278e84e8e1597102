"""Locks on Redis; the contract is in `store.protocol`. Each operation is one atomic script."""

from collections.abc import Sequence
from typing import Any

from drumbeat.core.lock import LockInfo, NewTicket, TicketInfo, TicketState, TicketStatus
from drumbeat.durations import from_us
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import int_or_zero

_GRANTED, _WAITING = 1, 2


class RedisLocks:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool

    async def acquire(self, ticket: NewTicket) -> TicketStatus:
        per = "" if ticket.per is None else ticket.per
        facts = (ticket.id, ticket.lock, ticket.limit, per, ticket.lease, ticket.owner, ticket.what)
        return _decode_ticket_status(ticket.id, await self._pool.run("acquire_lock", *facts))

    async def ticket_status(self, tickets: Sequence[str], *, renew: bool) -> list[TicketStatus]:
        if not tickets:
            return []
        ids = list(dict.fromkeys(tickets))
        answers = await self._pool.run("get_ticket_status", int(renew), *ids)
        found = {id: _decode_ticket_status(id, answer) for id, answer in zip(ids, answers, strict=True)}
        return [found[ticket] for ticket in tickets]

    async def release(self, tickets: Sequence[str]) -> None:
        if tickets:
            await self._pool.run("release_tickets", *tickets)

    async def force_release(self, lock: str, ticket: str | None, *, by: str, reason: str) -> int:
        return int(await self._pool.run("force_release_lock", lock, ticket or "", by, reason))

    async def list_page(self, *, after: str = "", limit: int = 100, all: bool = False) -> list[LockInfo]:
        return [_decode_lock(each) for each in await self._pool.run("list_locks", after, limit, int(all), "", 0)]

    async def get(self, lock: str) -> LockInfo | None:
        found = await self._pool.run("list_locks", "", 1, 1, lock, 1)
        return _decode_lock(found[0]) if found else None


def _decode_ticket_status(id: str, answer: list[Any]) -> TicketStatus:
    if answer[0] not in (_GRANTED, _WAITING):
        reason = answer[1] if len(answer) > 1 else None
        return TicketStatus(ticket=id, state=TicketState.LOST, reason=None if reason is None else _decode_text(reason))
    state, token, lane, granted_at, place, look_after = answer
    return TicketStatus(
        ticket=id,
        state=TicketState.GRANTED if state == _GRANTED else TicketState.WAITING,
        token=token,
        lane=lane,
        position=place,
        recheck_after_us=None if look_after < 0 else look_after,
        granted_at=granted_at or None,
    )


def _decode_text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


def _decode_lock(answer: list[Any]) -> LockInfo:
    name, limit, per, holding, waiting, released, tickets, opens_at = answer
    infos = [_decode_ticket(ticket) for ticket in tickets]
    return LockInfo(
        name=_decode_text(name),
        limit=int_or_zero(limit),
        per=int_or_zero(per) / 1_000_000 if per else None,
        holding=holding,
        waiting=waiting,
        holders=[info for info in infos if info.granted_at is not None],
        waiters=[info for info in infos if info.granted_at is None],
        released_at=from_us(int_or_zero(released[0])) if released else None,
        released_by=_decode_text(released[1]) if released else None,
        released_reason=_decode_text(released[2]) if released else None,
        opens_at=from_us(opens_at) if opens_at else None,
    )


def _decode_ticket(answer: list[Any]) -> TicketInfo:
    id, number, lane, owner, what, entered_at, granted_at, left = answer
    return TicketInfo(
        id=_decode_text(id),
        token=int_or_zero(number),
        lane=int_or_zero(lane) if lane else None,
        owner=_decode_text(owner),
        what=_decode_text(what),
        entered_at=from_us(int_or_zero(entered_at)),
        granted_at=from_us(int_or_zero(granted_at)) if granted_at else None,
        lease_left=left / 1_000_000,
    )
