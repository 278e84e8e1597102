"""Locks on SQLite. The contract is in `store.protocol.Locks`, the model in `core.turns`.

Each call is one transaction of the writer, so that one process at a time reads and changes the queue of a lock. No call waits
for the disk: a power cut also ends the holders, and the next boot knows that they are gone. A status of granted tickets only is
a read, which blocks no writer.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from drumbeat.core.lock import LockInfo, NewTicket, TicketStatus
from drumbeat.core.turns import count_free, free_lanes
from drumbeat.store.overview import LOCKS, TICKETS, add_lost_tickets, make_ticket_status
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite.boot import boot_id, boot_us
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.parts import SqliteOperations, SqliteParts
from drumbeat.store.sqlite.row_decoder import UNREADABLE, RowDecoder, encode_lossless, is_text_or_none
from drumbeat.store.sqlite.writer import WriteContext

log = logging.getLogger(__name__)

HOUR = 3_600_000_000

A = TypeVar("A")
R = TypeVar("R")


class ClockReading(NamedTuple):
    """The same time by both clocks. Not the transaction's time, which is older by the requests before in its group."""

    now: int
    """Time since boot, by which leases and windows are measured."""
    wall: int


class TicketStatusRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of the statement `ticket_statuses`."""

    id: str
    number: int
    lane: int | None
    granted_at: int | None
    place: int
    ahead: int | None


_decode_statuses = msgspec.json.Decoder(list[TicketStatusRow]).decode
_decode_locks = msgspec.json.Decoder(list[tuple[str, str]]).decode
_decode_lock_state = msgspec.json.Decoder(tuple[int, int | None, list[int]]).decode
_decode_waiting = msgspec.json.Decoder(list[tuple[str, int, str | None]]).decode
_decode_to_release = msgspec.json.Decoder(list[tuple[str, str | None]]).decode
_decode_release_reasons = msgspec.json.Decoder(list[tuple[str, str, str]]).decode
_decode_names = msgspec.json.Decoder(list[str]).decode
_read_tickets = RowDecoder.of(TICKETS).read
_read_locks = RowDecoder.of(LOCKS).read


class SqliteLocks(SqliteOperations):
    def __init__(self, parts: SqliteParts, sql: Statements) -> None:
        super().__init__(parts, sql)
        self._boot = boot_id()

    async def acquire(self, ticket: NewTicket) -> TicketStatus:
        return await self._write_or_repair(self._acquire, ticket)

    async def ticket_status(self, tickets: Sequence[str], *, renew: bool) -> list[TicketStatus]:
        if not tickets:
            return []
        if not renew:
            facts = {"ids": as_json(tickets), "now": boot_us(self._clock), "boot": self._boot}
            found = await self._worker_reader.read(lambda db: self._read_granted(db, facts))
            if len(found) == len(set(tickets)):
                return [_to_ticket_status(found[ticket], 0, {}) for ticket in tickets]
        return await self._write_or_repair(self._read_statuses, (tickets, renew))

    async def release(self, tickets: Sequence[str]) -> None:
        if tickets:
            await self._write_or_repair(self._release_tickets, tickets)

    async def force_release(self, lock: str, ticket: str | None, *, by: str, reason: str) -> int:
        return await self._write_or_repair(self._force_release_tickets, (lock, ticket, by, reason))

    async def list_page(self, *, after: str = "", limit: int = 100, all: bool = False) -> list[LockInfo]:
        facts = {"after": after, "limit": limit, "all": all, "lock": None}
        return await self._admin_reader.read(lambda db: self._read_infos(db, facts, waiters=False))

    async def get(self, lock: str) -> LockInfo | None:
        facts = {"after": "", "limit": 1, "all": True, "lock": lock}
        found = await self._admin_reader.read(lambda db: self._read_infos(db, facts, waiters=True))
        return found[0] if found else None

    async def _write_or_repair(self, work: Callable[[WriteContext, A], R], argument: A) -> R:
        """Run once more after deleting malformed rows where a row cannot be read."""

        def guarded(write: WriteContext, argument: A) -> R:
            try:
                return work(write, argument)
            except (*UNREADABLE, TypeError):
                self._repair(write)
                return work(write, argument)

        return await self._writer.write(guarded, argument, durable=False)

    # On the writer's thread, inside its transaction.

    def _repair(self, write: WriteContext) -> None:
        gone = write.db.run(self._sql.delete_malformed_tickets) + write.db.run(self._sql.delete_malformed_grants)
        mended = write.db.run(
            self._sql.repair_locks, {"wall": self._clock.now_us(), "lowest_token": write.lowest_token}
        )
        for id, *texts in write.db.rows(self._sql.texts_of_tickets):
            if not all(map(is_text_or_none, (id, *texts))):
                gone += write.db.run(self._sql.delete_malformed_ticket, {"id": encode_lossless(id)})
        for name, *texts in write.db.rows(self._sql.texts_of_locks):
            if not all(map(is_text_or_none, texts)):
                mended += write.db.run(self._sql.clear_texts, {"name": encode_lossless(name)})
        log.error(
            "stored locks could not be read: their malformed tickets were dropped",
            extra={"rows": gone, "locks": mended},
        )

    def _acquire(self, write: WriteContext, ticket: NewTicket) -> TicketStatus:
        db, sql, reading = write.db, self._sql, self._read_clocks()
        boot = db.value(sql.boot_of, {"lock": ticket.lock})
        if boot is None:
            self._delete_idle(write, reading)
        elif boot != self._boot:
            self._reset_after_boot(write, ticket.lock, reading)
        facts = msgspec.structs.asdict(ticket) | reading._asdict()
        known = {"hour": reading.wall // HOUR * HOUR, "boot": self._boot, "lowest_token": write.lowest_token}
        number = db.value(sql.upsert_lock, facts | known)
        db.run(sql.delete_expired, facts)
        db.run(sql.upsert_ticket, facts | {"number": number})
        opening = self._grant_free(write, ticket.lock, reading, (ticket.id,))
        return self._build_statuses(write, (ticket.id,), reading.now, opening)[0]

    def _read_statuses(self, write: WriteContext, given: tuple[Sequence[str], bool]) -> list[TicketStatus]:
        tickets, renew = given
        reading, ids = self._read_clocks(), as_json(tickets)
        locks = self._expire_leases(write, ids, reading)
        if renew:
            write.db.run(self._sql.renew, {"ids": ids, "now": reading.now})
        opening: dict[str, int] = {}
        for lock in locks:
            opening |= self._grant_free(write, lock, reading, tickets)
        return self._build_statuses(write, tickets, reading.now, opening)

    def _release_tickets(self, write: WriteContext, tickets: Sequence[str]) -> None:
        reading, ids = self._read_clocks(), as_json(tickets)
        locks = self._expire_leases(write, ids, reading)
        write.db.run(self._sql.delete_tickets, {"ids": ids})
        for lock in locks:
            self._grant_free(write, lock, reading, tickets)

    def _force_release_tickets(self, write: WriteContext, given: tuple[str, str | None, str, str]) -> int:
        lock, ticket, by, reason = given
        reading = self._read_clocks()
        if write.db.value(self._sql.boot_of, {"lock": lock}) != self._boot:
            return 0  # no such lock, or from before a reboot
        write.db.run(self._sql.delete_expired, {"lock": lock, "now": reading.now})
        held = _decode_to_release(write.db.value(self._sql.tickets_to_release, {"lock": lock, "ticket": ticket}))
        if held:
            released = " ".join(id for id, _ in held)
            facts = {"lock": lock, "released": released, "by": by, "reason": reason, "wall": reading.wall}
            write.db.run(self._sql.record_release, facts)
            write.db.run(self._sql.delete_tickets, {"ids": as_json([id for id, _ in held])})
            write.hints += [(wake, id, 0) for id, wake in held if wake is not None]
            self._grant_free(write, lock, reading, ())
        return len(held)

    def _read_clocks(self) -> ClockReading:
        return ClockReading(boot_us(self._clock), self._clock.now_us())

    def _expire_leases(self, write: WriteContext, ids: str, reading: ClockReading) -> list[str]:
        """Delete expired tickets of the locks of these tickets; return these locks."""
        locks = _decode_locks(write.db.value(self._sql.locks_of_tickets, {"ids": ids}))
        for lock, boot in locks:
            if boot != self._boot:
                self._reset_after_boot(write, lock, reading)
            write.db.run(self._sql.delete_expired, {"lock": lock, "now": reading.now})
        return [lock for lock, _ in locks]

    def _grant_free(
        self, write: WriteContext, lock: str, reading: ClockReading, callers: Collection[str]
    ) -> dict[str, int]:
        """Grant whatever is free to the first waiting tickets, and notify all but the callers.

        The first ticket at a closed rate window must know when it opens: it is notified, and returned with that time.
        """
        db, sql = write.db, self._sql
        limit, per, lanes = _decode_lock_state(db.value(sql.lock_state, {"lock": lock}))
        in_window = 0
        if per is not None:
            db.run(sql.prune_window, {"lock": lock, "now": reading.now, "per": per})
            in_window = db.value(sql.granted_in_window, {"lock": lock})
        if (free := count_free(limit, len(lanes), in_window)) > 0:
            unused = free_lanes(set(lanes))
            for id, number, wake in _decode_waiting(db.value(sql.first_waiting, {"lock": lock, "free": free})):
                db.run(sql.grant, {"id": id, "lane": next(unused), "wall": reading.wall})
                if per is not None:
                    db.run(sql.insert_grant, {"lock": lock, "number": number} | reading._asdict())
                if wake is not None and id not in callers:
                    write.hints.append((wake, id, 0))
        if per is None:
            return {}
        heads = _decode_waiting(db.value(sql.first_waiting, {"lock": lock, "free": 1}))
        opens_at = db.value(sql.opens_at, {"lock": lock, "per": per, "limit": limit}) if heads else None
        if opens_at is None:
            return {}
        [(first, _, wake)] = heads
        if wake is not None and first not in callers:
            write.hints.append((wake, first, max(0, opens_at - reading.now)))
        return {first: opens_at}

    def _build_statuses(
        self, write: WriteContext, tickets: Sequence[str], now: int, opening: Mapping[str, int]
    ) -> list[TicketStatus]:
        ids = as_json(tickets)
        if len(tickets) == 1:
            text = write.db.value(self._sql.ticket_status, {"id": tickets[0]}) or "[]"
        else:
            text = write.db.value(self._sql.ticket_statuses, {"ids": ids})
        found = {row.id: _to_ticket_status(row, now, opening) for row in _decode_statuses(text)}
        releases: list[tuple[str, str, str]] = []
        if any(ticket not in found for ticket in tickets):
            releases = _decode_release_reasons(write.db.value(self._sql.release_reasons, {"ids": ids}))
        return add_lost_tickets(tickets, found, releases)

    def _reset_after_boot(self, write: WriteContext, lock: str, reading: ClockReading) -> None:
        """Delete all tickets, whose processes ended with the last boot, and convert the times of the rate window."""
        write.db.run(self._sql.delete_tickets_of_locks, {"locks": as_json([lock])})
        write.db.run(self._sql.rebase_grants, {"lock": lock} | reading._asdict())
        write.db.run(self._sql.set_boot, {"lock": lock, "boot": self._boot})

    def _delete_idle(self, write: WriteContext, reading: ClockReading) -> None:
        """Delete some unused locks whenever a new name appears."""
        idle = write.db.value(self._sql.idle_locks, {"boot": self._boot} | reading._asdict())
        if _decode_names(idle):
            sql = self._sql
            for statement in (sql.delete_tickets_of_locks, sql.delete_idle_grants, sql.delete_idle_locks):
                write.db.run(statement, {"locks": idle})

    # On a reader's thread.

    def _read_granted(self, db: SqliteConnection, facts: dict[str, Any]) -> dict[str, TicketStatusRow]:
        """Empty where a row cannot be read: then the writer repairs it."""
        try:
            return {row.id: row for row in _decode_statuses(db.value(self._sql.granted_tickets, facts))}
        except UNREADABLE:
            return {}

    def _read_infos(self, db: SqliteConnection, facts: dict[str, Any], *, waiters: bool) -> list[LockInfo]:
        reading = self._read_clocks()
        locks = _read_locks(db, self._sql.page, facts | reading._asdict() | {"boot": self._boot})
        names = as_json([lock.name for lock in locks if lock.holding or lock.waiting])
        tickets = _read_tickets(db, self._sql.tickets, {"locks": names, "now": reading.now, "all": waiters})
        return [lock.to_record(tickets) for lock in locks]


def _to_ticket_status(row: TicketStatusRow, now: int, opening: Mapping[str, int]) -> TicketStatus:
    deadlines = [at for at in (row.ahead, opening.get(row.id)) if at is not None]
    recheck_after = max(0, min(deadlines) - now) if deadlines else None
    return make_ticket_status(row.id, row.number, row.lane, row.place, recheck_after, row.granted_at)
