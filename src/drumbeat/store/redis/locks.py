"""Turns, on Redis. The contract is in `store.protocol.Locks`. Each operation is one script, atomic on the server."""

from collections.abc import Sequence
from typing import Any

from drumbeat.durations import from_us
from drumbeat.model.lock import LockInfo, NewTicket, Seen, TicketInfo, TicketState
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.texts import number_or_0

_HOLDS, _WAITS = 1, 2


class RedisLocks:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def enter(self, ticket: NewTicket) -> Seen:
        per = "" if ticket.per is None else ticket.per
        facts = (ticket.id, ticket.lock, ticket.limit, per, ticket.lease, ticket.owner, ticket.what)
        return _seen(ticket.id, await self._link.run("locks_enter", *facts))

    async def look(self, tickets: Sequence[str], *, renew: bool) -> list[Seen]:
        if not tickets:
            return []
        ids = list(dict.fromkeys(tickets))
        answers = await self._link.run("locks_look", int(renew), *ids)
        found = {id: _seen(id, answer) for id, answer in zip(ids, answers, strict=True)}
        return [found[ticket] for ticket in tickets]

    async def leave(self, tickets: Sequence[str]) -> None:
        if tickets:
            await self._link.run("locks_leave", *tickets)

    async def release(self, lock: str, ticket: str | None, *, by: str, why: str) -> int:
        count: int = await self._link.run("locks_release", lock, ticket or "", by, why)
        return count

    async def page(self, *, after: str = "", limit: int = 100, all: bool = False) -> list[LockInfo]:
        return [_info(each) for each in await self._link.run("locks_page", after, limit, int(all), "", 0)]

    async def get(self, lock: str) -> LockInfo | None:
        found = await self._link.run("locks_page", "", 1, 1, lock, 1)
        return _info(found[0]) if found else None


def _seen(id: str, answer: list[Any]) -> Seen:
    if answer[0] not in (_HOLDS, _WAITS):
        why = answer[1] if len(answer) > 1 else None
        return Seen(ticket=id, state=TicketState.LOST, why=None if why is None else _text(why))
    state, token, lane, granted_at, place, look_after = answer
    return Seen(
        ticket=id,
        state=TicketState.GRANTED if state == _HOLDS else TicketState.WAITING,
        token=token,
        lane=lane,
        place=place,
        look_after=None if look_after < 0 else look_after,
        granted_at=granted_at or None,
    )


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


def _info(answer: list[Any]) -> LockInfo:
    name, limit, per, holding, waiting, released, tickets, opens_at = answer
    infos = [_ticket(ticket) for ticket in tickets]
    return LockInfo(
        name=_text(name),
        limit=number_or_0(limit),
        per=number_or_0(per) / 1_000_000 if per else None,
        holding=holding,
        waiting=waiting,
        holders=[info for info in infos if info.granted_at is not None],
        waiters=[info for info in infos if info.granted_at is None],
        released_at=from_us(number_or_0(released[0])) if released else None,
        released_by=_text(released[1]) if released else None,
        released_why=_text(released[2]) if released else None,
        opens_at=from_us(opens_at) if opens_at else None,
    )


def _ticket(answer: list[Any]) -> TicketInfo:
    id, number, lane, owner, what, entered_at, granted_at, left = answer
    return TicketInfo(
        id=_text(id),
        token=number_or_0(number),
        lane=number_or_0(lane) if lane else None,
        owner=_text(owner),
        what=_text(what),
        entered_at=from_us(number_or_0(entered_at)),
        granted_at=from_us(number_or_0(granted_at)) if granted_at else None,
        lease_left=left / 1_000_000,
    )
