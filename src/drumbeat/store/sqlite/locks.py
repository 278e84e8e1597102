"""Turns, on SQLite. The contract is in `store.protocol.Locks`.

Everything happens inside the writer's turn, one transaction for each call, so a line is looked at and changed by one process
at a time. Nothing here waits for the disk: a power cut ends those who hold locks as well, and the next boot knows that they are
gone. A look that only finds what was granted is a read, in nobody's way.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from drumbeat.clock import Clock
from drumbeat.durations import from_us
from drumbeat.model.lock import LockInfo, NewTicket, Seen, TicketInfo, TicketState
from drumbeat.store.sqlite.boot import boot_id, boot_us
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.shapes import UNREADABLE, Shape, as_stored, is_text_or_none
from drumbeat.store.sqlite.statements import LockSql
from drumbeat.store.sqlite.writer import Write, Writer

log = logging.getLogger(__name__)

HOUR = 3_600_000_000

A = TypeVar("A")
R = TypeVar("R")


class Moment(NamedTuple):
    """The same moment by both clocks: the transaction's own is older, by what was done before in its group."""

    now: int
    """Boot time: what leases and windows go by."""
    wall: int


class Sight(msgspec.Struct, frozen=True, array_like=True):
    """A row of the statement `seen`."""

    id: str
    number: int
    lane: int | None
    granted_at: int | None
    place: int
    ahead: int | None


class TicketRow(msgspec.Struct, frozen=True, array_like=True):
    lock: str
    id: str
    number: int
    lane: int | None
    owner: str
    what: str
    entered_at: int
    granted_at: int | None
    left: int

    def info(self) -> TicketInfo:
        return TicketInfo(
            id=self.id,
            token=self.number,
            lane=self.lane,
            owner=self.owner,
            what=self.what,
            entered_at=from_us(self.entered_at),
            granted_at=None if self.granted_at is None else from_us(self.granted_at),
            lease_left=self.left / 1_000_000,
        )


class LockRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    limit: int
    per: int | None
    holding: int
    waiting: int
    released_at: int | None
    released_by: str | None
    released_why: str | None
    opens_in: int | None

    def info(self, tickets: Sequence[TicketRow], now: int) -> LockInfo:
        own = [ticket for ticket in tickets if ticket.lock == self.name]
        return LockInfo(
            name=self.name,
            limit=self.limit,
            per=None if self.per is None else self.per / 1_000_000,
            holding=self.holding,
            waiting=self.waiting,
            holders=[ticket.info() for ticket in own if ticket.granted_at is not None],
            waiters=[ticket.info() for ticket in own if ticket.granted_at is None],
            released_at=None if self.released_at is None else from_us(self.released_at),
            released_by=self.released_by,
            released_why=self.released_why,
            opens_at=None if self.opens_in is None else from_us(now + self.opens_in),
        )


_sights = msgspec.json.Decoder(list[Sight]).decode
_lines = msgspec.json.Decoder(list[tuple[str, str]]).decode
_standing = msgspec.json.Decoder(tuple[int, int | None, list[int]]).decode
_heads = msgspec.json.Decoder(list[tuple[str, int, str | None]]).decode
_holding = msgspec.json.Decoder(list[tuple[str, str | None]]).decode
_reasons = msgspec.json.Decoder(list[tuple[str, str, str]]).decode
_names = msgspec.json.Decoder(list[str]).decode
_tickets = Shape(TicketRow, "ticket of a lock").read
_locks = Shape(LockRow, "lock", id="name").read


class SqliteLocks:
    def __init__(self, sql: LockSql, *, writer: Writer, looks: Reader, lists: Reader, clock: Clock) -> None:
        self._sql = sql
        self._writer = writer
        self._looks = looks
        self._lists = lists
        self._clock = clock
        self._boot = boot_id()

    async def enter(self, ticket: NewTicket) -> Seen:
        return await self._write(self._enter, ticket)

    async def look(self, tickets: Sequence[str], *, renew: bool) -> list[Seen]:
        if not tickets:
            return []
        if not renew:
            facts = {"ids": as_json(tickets), "now": boot_us(self._clock), "boot": self._boot}
            found = await self._looks.read(lambda db: self._granted(db, facts))
            if len(found) == len(set(tickets)):
                return [_seen(found[ticket], 0, {}) for ticket in tickets]
        return await self._write(self._look, (tickets, renew))

    async def leave(self, tickets: Sequence[str]) -> None:
        if tickets:
            await self._write(self._leave, tickets)

    async def release(self, lock: str, ticket: str | None, *, by: str, why: str) -> int:
        return await self._write(self._release, (lock, ticket, by, why))

    async def page(self, *, after: str = "", limit: int = 100, all: bool = False) -> list[LockInfo]:
        facts = {"after": after, "limit": limit, "all": all, "lock": None}
        return await self._lists.read(lambda db: self._infos(db, facts, waiters=False))

    async def get(self, lock: str) -> LockInfo | None:
        facts = {"after": "", "limit": 1, "all": True, "lock": lock}
        found = await self._lists.read(lambda db: self._infos(db, facts, waiters=True))
        return found[0] if found else None

    async def _write(self, work: Callable[[Write, A], R], argument: A) -> R:
        """Where a row cannot be read, those that are not as we write them go, and it is done once more."""

        def guarded(write: Write, argument: A) -> R:
            try:
                return work(write, argument)
            except (*UNREADABLE, TypeError):
                self._mend(write)
                return work(write, argument)

        return await self._writer.write(guarded, argument, durable=False)

    # On the writer's thread, inside its transaction.

    def _mend(self, write: Write) -> None:
        gone = write.db.run(self._sql.drop_malformed) + write.db.run(self._sql.drop_malformed_grants)
        mended = write.db.run(self._sql.mend, {"wall": self._clock.now_us()})
        for id, *texts in write.db.rows(self._sql.texts_of_tickets):
            if not all(map(is_text_or_none, (id, *texts))):
                gone += write.db.run(self._sql.drop_ticket, {"id": as_stored(id)})
        for name, *texts in write.db.rows(self._sql.texts_of_locks):
            if not all(map(is_text_or_none, texts)):
                mended += write.db.run(self._sql.clear_texts, {"name": as_stored(name)})
        log.error(
            "stored locks could not be read: their malformed tickets were dropped",
            extra={"rows": gone, "locks": mended},
        )

    def _enter(self, write: Write, ticket: NewTicket) -> Seen:
        db, sql, moment = write.db, self._sql, self._moment()
        boot = db.value(sql.boot_of, {"lock": ticket.lock})
        if boot is None:
            self._forget_idle(write, moment)
        elif boot != self._boot:
            self._begin_anew(write, ticket.lock, moment)
        number = db.value(
            sql.open,
            {
                "lock": ticket.lock,
                "limit": ticket.limit,
                "per": ticket.per,
                "wall": moment.wall,
                "hour": moment.wall // HOUR * HOUR,
                "boot": self._boot,
            },
        )
        db.run(sql.expire, {"lock": ticket.lock, "now": moment.now})
        facts = msgspec.structs.asdict(ticket)
        wanted = ("id", "lock", "lease", "owner", "what", "wake")
        db.run(sql.admit, {name: facts[name] for name in wanted} | {"number": number} | moment._asdict())
        opening = self._serve(write, ticket.lock, moment, (ticket.id,))
        return self._seen(write, (ticket.id,), moment.now, opening)[0]

    def _look(self, write: Write, given: tuple[Sequence[str], bool]) -> list[Seen]:
        tickets, renew = given
        moment, ids = self._moment(), as_json(tickets)
        lines = self._cleared(write, ids, moment)
        if renew:
            write.db.run(self._sql.renew, {"ids": ids, "now": moment.now})
        opening: dict[str, int] = {}
        for lock in lines:
            opening |= self._serve(write, lock, moment, tickets)
        return self._seen(write, tickets, moment.now, opening)

    def _leave(self, write: Write, tickets: Sequence[str]) -> None:
        moment, ids = self._moment(), as_json(tickets)
        lines = self._cleared(write, ids, moment)
        write.db.run(self._sql.leave, {"ids": ids})
        for lock in lines:
            self._serve(write, lock, moment, tickets)

    def _release(self, write: Write, given: tuple[str, str | None, str, str]) -> int:
        lock, ticket, by, why = given
        moment = self._moment()
        if write.db.value(self._sql.boot_of, {"lock": lock}) != self._boot:
            return 0  # no such lock, or from before a reboot
        write.db.run(self._sql.expire, {"lock": lock, "now": moment.now})
        held = _holding(write.db.value(self._sql.holding, {"lock": lock, "ticket": ticket}))
        if held:
            released = " ".join(id for id, _ in held)
            facts = {"lock": lock, "released": released, "by": by, "why": why, "wall": moment.wall}
            write.db.run(self._sql.note_release, facts)
            write.db.run(self._sql.leave, {"ids": as_json([id for id, _ in held])})
            write.calls += [(wake, id, 0) for id, wake in held if wake is not None]
            self._serve(write, lock, moment, ())
        return len(held)

    def _moment(self) -> Moment:
        return Moment(boot_us(self._clock), self._clock.now_us())

    def _cleared(self, write: Write, ids: str, moment: Moment) -> list[str]:
        """The lines of these tickets, without the dead in them."""
        lines = _lines(write.db.value(self._sql.lines, {"ids": ids}))
        for lock, boot in lines:
            if boot != self._boot:
                self._begin_anew(write, lock, moment)
            write.db.run(self._sql.expire, {"lock": lock, "now": moment.now})
        return [lock for lock, _ in lines]

    def _serve(self, write: Write, lock: str, moment: Moment, asked: Collection[str]) -> dict[str, int]:
        """Grant whatever is free to the first in line, and tell those who have not asked.

        Whoever is first in front of a closed window must know when it opens: it is told, and given here.
        """
        db, sql = write.db, self._sql
        limit, per, lanes = _standing(db.value(sql.standing, {"lock": lock}))
        free = limit - len(lanes)
        if per is not None:
            db.run(sql.shut_window, {"lock": lock, "now": moment.now, "per": per})
            free = min(free, limit - db.value(sql.granted_in_window, {"lock": lock}))
        if free > 0:
            taken = set(lanes)
            unused = (lane for lane in range(limit + len(taken)) if lane not in taken)
            for id, number, wake in _heads(db.value(sql.heads, {"lock": lock, "free": free})):
                db.run(sql.grant, {"id": id, "lane": next(unused), "wall": moment.wall})
                if per is not None:
                    db.run(sql.note_grant, {"lock": lock, "number": number} | moment._asdict())
                if wake is not None and id not in asked:
                    write.calls.append((wake, id, 0))
        if per is None:
            return {}
        heads = _heads(db.value(sql.heads, {"lock": lock, "free": 1}))
        opens_at = db.value(sql.opens_at, {"lock": lock, "per": per, "limit": limit}) if heads else None
        if opens_at is None:
            return {}
        [(first, _, wake)] = heads
        if wake is not None and first not in asked:
            write.calls.append((wake, first, max(0, opens_at - moment.now)))
        return {first: opens_at}

    def _seen(self, write: Write, tickets: Sequence[str], now: int, opening: Mapping[str, int]) -> list[Seen]:
        ids = as_json(tickets)
        if len(tickets) == 1:
            text = write.db.value(self._sql.seen_alone, {"id": tickets[0]}) or "[]"
        else:
            text = write.db.value(self._sql.seen, {"ids": ids})
        found = {sight.id: sight for sight in _sights(text)}
        why: dict[str, str] = {}
        if any(ticket not in found for ticket in tickets):
            for released, by, reason in _reasons(write.db.value(self._sql.reasons, {"ids": ids})):
                why |= dict.fromkeys(released.split(), f"released by {by}: {reason}")
        return [
            _seen(found[ticket], now, opening)
            if ticket in found
            else Seen(ticket=ticket, state=TicketState.LOST, why=why.get(ticket))
            for ticket in tickets
        ]

    def _begin_anew(self, write: Write, lock: str, moment: Moment) -> None:
        """The machine was started since: nobody who held or wanted it lives; what its window counts has new dates."""
        write.db.run(self._sql.clear, {"lock": lock})
        write.db.run(self._sql.redate, {"lock": lock} | moment._asdict())
        write.db.run(self._sql.after_boot, {"lock": lock, "boot": self._boot})

    def _forget_idle(self, write: Write, moment: Moment) -> None:
        """Each new name makes room for some that nobody uses any more."""
        idle = write.db.value(self._sql.idle, {"boot": self._boot} | moment._asdict())
        if _names(idle):
            for statement in (self._sql.forget_tickets, self._sql.forget_grants, self._sql.forget_locks):
                write.db.run(statement, {"locks": idle})

    # On a reader's thread.

    def _granted(self, db: Connection, facts: dict[str, Any]) -> dict[str, Sight]:
        """Where one cannot be read: nothing. Then the writer looks, and mends."""
        try:
            return {sight.id: sight for sight in _sights(db.value(self._sql.granted, facts))}
        except UNREADABLE:
            return {}

    def _infos(self, db: Connection, facts: dict[str, Any], *, waiters: bool) -> list[LockInfo]:
        now, wall = self._moment()
        locks = _locks(db, self._sql.page, facts | {"now": now, "boot": self._boot})
        names = as_json([lock.name for lock in locks if lock.holding or lock.waiting])
        tickets = _tickets(db, self._sql.tickets, {"locks": names, "now": now, "all": waiters})
        return [lock.info(tickets, wall) for lock in locks]


def _seen(sight: Sight, now: int, opening: Mapping[str, int]) -> Seen:
    waits = sight.granted_at is None
    moments = [moment for moment in (sight.ahead, opening.get(sight.id)) if moment is not None] if waits else []
    return Seen(
        ticket=sight.id,
        state=TicketState.WAITING if waits else TicketState.GRANTED,
        token=sight.number,
        lane=sight.lane or 0,
        place=sight.place if waits else 0,
        look_after=max(0, min(moments) - now) if moments else None,
        granted_at=sight.granted_at,
    )
