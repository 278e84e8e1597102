"""Rows that SQL engines return for people: queues, tasks, groups of dead letters, the leader, locks; and their conversion.

The order of fields is the order of columns in the `.sql` files. Times are still integers here.
"""

from collections.abc import Iterable, Sequence

import msgspec

from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.instance import LeaderInfo
from drumbeat.core.job_query import QueueStats, TaskStats
from drumbeat.core.lock import LockInfo, TicketInfo, TicketState, TicketStatus
from drumbeat.durations import from_us
from drumbeat.store.malformed import RecordKind, drop_row, repair_names
from drumbeat.store.records import row_of, to_datetime_or_none


class QueueRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    running: int
    waiting: int
    oldest_due: int | None
    paused: int
    paused_by: str | None
    paused_reason: str | None
    paused_at: int | None

    def to_record(self) -> QueueStats:
        """Without the number of due jobs."""
        facts = msgspec.structs.asdict(self)
        facts |= {name: to_datetime_or_none(facts[name]) for name in ("oldest_due", "paused_at")}
        return QueueStats(**facts | {"paused": bool(self.paused), "ready": 0, "scheduled": 0})


QUEUES = RecordKind("queue", QueueRow, id="name", repair=repair_names)
TASKS = RecordKind("task", row_of(TaskStats), id="name", repair=repair_names)
DEAD_GROUPS = RecordKind("dead letter", row_of(DeadLetterGroup), id="sample", repair=repair_names)
LEADERS = RecordKind("leader", row_of(LeaderInfo), id="instance", repair=drop_row)


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
    """Of its lease."""

    def to_record(self) -> TicketInfo:
        return TicketInfo(
            id=self.id,
            token=self.number,
            lane=self.lane,
            owner=self.owner,
            what=self.what,
            entered_at=from_us(self.entered_at),
            granted_at=to_datetime_or_none(self.granted_at),
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
    released_reason: str | None
    opens_at: int | None

    def to_record(self, tickets: Sequence[TicketRow]) -> LockInfo:
        """tickets: of any locks."""
        facts = msgspec.structs.asdict(self)
        facts |= {name: to_datetime_or_none(facts[name]) for name in ("released_at", "opens_at")}
        facts["per"] = None if self.per is None else self.per / 1_000_000
        own = [ticket for ticket in tickets if ticket.lock == self.name]
        holders = [ticket.to_record() for ticket in own if ticket.granted_at is not None]
        waiters = [ticket.to_record() for ticket in own if ticket.granted_at is None]
        return LockInfo(**facts, holders=holders, waiters=waiters)


TICKETS = RecordKind("ticket of a lock", TicketRow)
LOCKS = RecordKind("lock", LockRow, id="name")


def make_ticket_status(
    ticket: str, token: int, lane: int | None, place: int, recheck_after_us: int | None, granted_at: int | None
) -> TicketStatus:
    """The status of a ticket that exists; place: among those that wait."""
    waits = granted_at is None
    return TicketStatus(
        ticket=ticket,
        state=TicketState.WAITING if waits else TicketState.GRANTED,
        token=token,
        lane=lane or 0,
        position=place if waits else 0,
        recheck_after_us=recheck_after_us if waits else None,
        granted_at=granted_at,
    )


def add_lost_tickets(
    tickets: Sequence[str], found: dict[str, TicketStatus], releases: Iterable[tuple[str, str, str]]
) -> list[TicketStatus]:
    """The statuses of these tickets; releases: (ids, by, reason) of those that were released by force."""
    reasons = {id: f"released by {by}: {reason}" for ids, by, reason in releases for id in ids.split()}
    return [found.get(id) or TicketStatus(ticket=id, state=TicketState.LOST, reason=reasons.get(id)) for id in tickets]
