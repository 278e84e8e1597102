"""Which jobs a claim gets. `pick` and `look` are the two ends: inside the turn, and before going for it."""

from typing import Any

from drumbeat.ids import InstanceId, JobId, new_job_id
from drumbeat.model.job import Claim
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.shapes import UNREADABLE, is_text, plain
from drumbeat.store.sqlite.statements import JobSql
from drumbeat.store.sqlite.writer import Write

_BEFORE_ALL = -(2**63)
"""Before every due moment: a job may be due since before 1970."""
Picked = str | list[tuple[JobId | None, tuple[Any, ...]]]
"""Jobs as JSON text (list[Claimed]); or, where that cannot be made, row by row, with the new id of one that had none."""


class Asked:
    """A claim, made ready on the caller's thread."""

    __slots__ = ("claim", "instance", "looks_for_malformed", "queues", "wants")

    def __init__(self, instance: InstanceId, claim: Claim) -> None:
        self.instance = instance
        self.claim = claim
        self.queues = as_json([queue for queue, _ in claim.queues])
        self.wants = as_json(claim.wants)
        self.looks_for_malformed = False
        """A look has found jobs whose due moment is none: they are claimed too, and so found out."""


class Claiming:
    def __init__(self, sql: JobSql) -> None:
        self._sql = sql

    def claim(self, write: Write, asked: Asked) -> tuple[Picked, int | None]:
        """Claim: the jobs for `rows.claimed`, and the next due moment if there were fewer than wanted."""
        waited = self._waiting(write.db, asked, write.now, asked.claim.limit) if asked.claim.wants else []
        if asked.looks_for_malformed:
            waited += self._never_due(write.db, asked, asked.claim.limit - len(waited))
        picked = waited + self._pick(write, asked, asked.claim.limit - len(waited))
        next_due = None
        if len(picked) < asked.claim.limit:
            # Before the claim they are still in the index: look behind them.
            next_due = self._next_due(write.db, asked.queues, write.now)
        if not picked:
            return "[]", next_due
        seqs = as_json(picked)
        write.db.run(self._sql.claim, {"picked": seqs, "instance": asked.instance, "now": write.now})
        if waited:
            write.db.run(self._sql.end_waits, {"picked": as_json(waited)})
        try:
            return write.db.value(self._sql.claimed, {"picked": seqs}), next_due
        except UNREADABLE:
            return self._row_by_row(write, seqs), next_due

    def _row_by_row(self, write: Write, seqs: str) -> list[tuple[JobId | None, tuple[Any, ...]]]:
        """What was claimed, where a row cannot be made JSON. One whose id is no text gets another, to be named by."""
        picked = {"picked": seqs}
        found: list[tuple[JobId | None, tuple[Any, ...]]] = []
        places = rows.seqs(seqs)
        for seq, row in zip(places, write.db.rows(plain(self._sql.claimed), picked), strict=True):
            new_id = None if is_text(row[0]) else new_job_id()
            if new_id is not None:
                write.db.run(self._sql.rename, {"seq": seq, "id": new_id})
            found.append((new_id, row))
        return found

    def look(self, db: Connection, asked: Asked, now: int) -> tuple[bool, int | None]:
        """Whether anything may be there to claim, and else the next due moment. A read: it disturbs nobody."""
        next_due = self._next_due(db, asked.queues, None)
        if next_due is not None and next_due <= now:
            return True, None
        if asked.claim.wants and self._waiting(db, asked, now, 1):
            return True, None
        asked.looks_for_malformed = bool(self._never_due(db, asked, 1))
        return asked.looks_for_malformed, next_due

    def _pick(self, write: Write, asked: Asked, wanted: int) -> list[int]:
        """Shares first, in the order of the queues' turn; then what is left of the limit, in the same order."""
        shared: list[int] = []
        rest: list[int] = []
        for queue, share in asked.claim.queues:
            if len(shared) >= wanted:
                break
            parameters = {"queue": queue, "now": write.now, "limit": wanted, "instance": asked.instance}
            found = rows.seqs(write.db.value(self._sql.pick, parameters))
            share = max(0, min(share, wanted - len(shared)))
            shared += found[:share]
            rest += found[share:]
        return shared + rest[: max(0, wanted - len(shared))]

    def _waiting(self, db: Connection, asked: Asked, now: int, limit: int) -> list[int]:
        parameters = {
            "wants": asked.wants,
            "queues": asked.queues,
            "now": now,
            "limit": limit,
            "instance": asked.instance,
        }
        return rows.seqs(db.value(self._sql.pick_waiting, parameters))

    def _never_due(self, db: Connection, asked: Asked, limit: int) -> list[int]:
        parameters = {"queues": asked.queues, "limit": limit, "instance": asked.instance}
        return rows.seqs(db.value(self._sql.never_due, parameters))

    def _next_due(self, db: Connection, queues: str, after: int | None) -> int | None:
        parameters: dict[str, Any] = {"queues": queues, "after": _BEFORE_ALL if after is None else after}
        found = db.value(self._sql.next_due, parameters)
        return found if type(found) is int else None
