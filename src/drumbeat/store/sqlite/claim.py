"""Which jobs a claim gets: `claim` inside the writer's transaction, `has_due` by a read before taking the write lock.

What lanes give is picked and settled by lanes.py.
"""

from typing import Any

from drumbeat.core.claim import ClaimRequest
from drumbeat.ids import InstanceId, JobId, new_job_id
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.lanes import SqliteLaneClaimer
from drumbeat.store.sqlite.row_decoder import UNREADABLE, is_text, without_json
from drumbeat.store.sqlite.writer import WriteContext

_MIN_TIMESTAMP = -(2**63)
"""Before every due time: a job may be due since before 1970."""
ClaimedRows = str | list[tuple[JobId | None, tuple[Any, ...]]]
"""Jobs as JSON text (list[ClaimedJob]); or, if a row cannot be made JSON, row by row, with the new id of one without."""


class SqliteClaimRequest:
    """A claim with its parameters encoded on the caller's thread."""

    __slots__ = (
        "claim",
        "has_limited",
        "has_lines",
        "has_releases",
        "include_malformed",
        "instance",
        "queues",
        "slots",
        "unblocks",
    )

    def __init__(self, instance: InstanceId, claim: ClaimRequest) -> None:
        self.instance = instance
        self.claim = claim
        self.queues = as_json([queue for queue, _ in claim.queues])
        self.unblocks = as_json(claim.unblocks)
        self.slots = claim.limit if claim.slots is None else claim.slots
        """How many jobs under limits may still be claimed."""
        self.has_lines = False
        """Some of the queues have lines."""
        self.has_limited = False
        """As in ClaimResult."""
        self.has_releases = False
        """`has_due` found that releases are left: they are to be followed first."""
        self.include_malformed = False
        """`has_due` found jobs without a valid due time: they are claimed too, and so reported as malformed."""


class SqliteClaimer:
    def __init__(self, sql: Statements, lanes: SqliteLaneClaimer) -> None:
        self._sql = sql
        self._lanes = lanes

    def claim(self, write: WriteContext, request: SqliteClaimRequest) -> tuple[ClaimedRows, int | None]:
        """The claimed jobs for `rows.decode_claimed`, and the next due time if there were fewer than wanted. Says in
        `request.has_releases` whether releases are left."""
        request.has_releases = request.has_lines = False
        unblocked = []
        if request.claim.unblocks:
            unblocked = self._pick_unblocked(write.db, request, write.now, request.claim.limit)
            if in_lanes := self._pick_unblocked(write.db, request, write.now, request.claim.limit, in_lanes=True):
                write.db.run(self._sql.unblock, {"picked": as_json(in_lanes)})  # their lanes give them
        if request.include_malformed:
            unblocked += self._pick_malformed(write.db, request, request.claim.limit - len(unblocked))
        picked = unblocked + self._pick_due(write, request, request.claim.limit - len(unblocked))
        next_due = None
        if len(picked) < request.claim.limit:
            # Until they are claimed below, the picked jobs are in the index: search after `now`.
            next_due = self._find_next_due(write.db, request.queues, write.now)
            if request.has_lines:
                next_due = self._find_lanes_due(write.db, request, next_due, write.now)
        elif request.has_lines and request.claim.slots is not None and request.slots <= 0:
            self._find_lanes_due(write.db, request, None, write.now)  # has_limited
        if not picked:
            return "[]", next_due
        seqs = as_json(picked)
        facts = {"picked": seqs, "instance": request.instance, "now": write.now, "lowest_token": write.lowest_token}
        write.db.run(self._sql.claim, facts)
        if unblocked:
            write.db.run(self._sql.unblock, {"picked": as_json(unblocked)})
        try:
            return write.db.value(self._sql.claimed_jobs, {"picked": seqs}), next_due
        except UNREADABLE:
            return self._read_row_by_row(write, seqs), next_due

    def _read_row_by_row(self, write: WriteContext, seqs: str) -> list[tuple[JobId | None, tuple[Any, ...]]]:
        """The claimed rows, when SQLite cannot make JSON of one. A job whose id is not text gets a new id."""
        found: list[tuple[JobId | None, tuple[Any, ...]]] = []
        claimed = write.db.rows(without_json(self._sql.claimed_jobs), {"picked": seqs})
        for seq, row in zip(rows.seqs(seqs), claimed, strict=True):
            new_id = None if is_text(row[0]) else new_job_id()
            if new_id is not None:
                write.db.run(self._sql.set_id, {"seq": seq, "id": new_id})
            found.append((new_id, row))
        return found

    def has_due(self, db: SqliteConnection, request: SqliteClaimRequest, now: int) -> tuple[bool, int | None]:
        """Whether there may be a job to claim, and else the next due time. A read, which blocks nobody."""
        has_releases, has_lines = db.row(self._sql.has_releases)
        request.has_releases, request.has_lines = bool(has_releases), bool(has_lines)
        if request.has_releases:
            return True, None
        next_due = self._find_next_due(db, request.queues, None)
        if request.has_lines:
            next_due = self._find_lanes_due(db, request, next_due, now)
        if next_due is not None and next_due <= now:
            return True, None
        if request.claim.unblocks and (
            self._pick_unblocked(db, request, now, 1) or self._pick_unblocked(db, request, now, 1, in_lanes=True)
        ):
            return True, None
        request.include_malformed = bool(self._pick_malformed(db, request, 1))
        return request.include_malformed, next_due

    def _pick_due(self, write: WriteContext, request: SqliteClaimRequest, wanted: int) -> list[int]:
        """First the share of each queue, in the order of the request; then fill up to the limit, in the same order."""
        shared: list[int] = []
        rest: list[int] = []
        for queue, share in request.claim.queues:
            if len(shared) >= wanted:
                break
            parameters = {"queue": queue, "now": write.now, "limit": wanted, "instance": request.instance}
            picked, has_releases, has_lines = write.db.row(self._sql.pick, parameters)
            request.has_releases |= bool(has_releases)
            found = rows.seqs(picked)
            share = max(0, min(share, wanted - len(shared)))
            if has_lines:
                request.has_lines = True
                of_lanes = self._pick_of_lanes(write, request, queue, share, len(found))
                shared += of_lanes
                share -= len(of_lanes)
            shared += found[:share]
            rest += found[share:]
        return shared + rest[: max(0, wanted - len(shared))]

    def _pick_of_lanes(
        self, write: WriteContext, request: SqliteClaimRequest, queue: str, share: int, plain: int
    ) -> list[int]:
        """What the lanes of a queue give. Its other jobs, of which so many are due, and its lines have equal parts of the share."""
        lines = self._lanes.read_lines(write.db, queue, request.instance)
        ready = self._lanes.read_ready(write.db, queue, lines, write.now, share)
        if not ready:
            return []
        parts = len(ready) + 1
        places = share - min(plain, (share + write.now % parts) // parts)
        seqs, slots = self._lanes.pick(write, queue, lines, ready, places, request.slots)
        request.slots -= slots
        return seqs

    def _find_lanes_due(
        self, db: SqliteConnection, request: SqliteClaimRequest, next_due: int | None, now: int
    ) -> int | None:
        """The next due time with what lanes have. Says in `request.has_limited` whether only slots are missing."""
        queues = [queue for queue, _ in request.claim.queues]
        found = self._lanes.find_due(db, queues, request.slots, now, request.instance)
        request.has_limited = found.has_limited
        return min((due for due in (next_due, found.next_due) if due is not None), default=None)

    def _pick_unblocked(
        self, db: SqliteConnection, request: SqliteClaimRequest, now: int, limit: int, *, in_lanes: bool = False
    ) -> list[int]:
        parameters = {
            "unblocks": request.unblocks,
            "queues": request.queues,
            "now": now,
            "limit": limit,
            "instance": request.instance,
            "in_lanes": in_lanes,
        }
        return rows.seqs(db.value(self._sql.pick_unblocked, parameters))

    def _pick_malformed(self, db: SqliteConnection, request: SqliteClaimRequest, limit: int) -> list[int]:
        parameters = {"queues": request.queues, "limit": limit, "instance": request.instance}
        return rows.seqs(db.value(self._sql.pick_malformed, parameters))

    def _find_next_due(self, db: SqliteConnection, queues: str, after: int | None) -> int | None:
        parameters: dict[str, Any] = {"queues": queues, "after": _MIN_TIMESTAMP if after is None else after}
        found = db.value(self._sql.next_due, parameters)
        return found if type(found) is int else None
