"""Follows the releases of parents on SQLite: what their end, or their replay, does to children. Runs on the writer's thread.

What each edge means is decided by `core.dependencies`; one step follows at most MAX_ADVANCED edges, in a few statements for all
of them. The releases themselves are left by a trigger of the schema, or by whoever discards or replays dead letters.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.core.dependencies import MAX_ADVANCED, WORKFLOW_CANCELLED, ParentEvent, parent_failure
from drumbeat.core.job import Failure
from drumbeat.core.uniqueness import unique_keys
from drumbeat.ids import JobId
from drumbeat.store.advance_plan import CancelledChildRow, FollowedRow, plan_advance, plan_revivals
from drumbeat.store.dependency_rows import JudgedRow, ParentRow, ReleaseRow
from drumbeat.store.malformed import Faults, drop_row
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import EngineStatements
from drumbeat.store.sqlite.completion import SqliteCompletionWriter
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.insert import load_unique_keys
from drumbeat.store.sqlite.row_decoder import UNREADABLE, RowDecoder
from drumbeat.store.sqlite.writer import WriteContext

_MAX_ROUNDS = 10
"""A long chain that is cancelled is followed in several transactions."""


def _skip_edge(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """As `repair`: an edge that cannot be read does nothing. Its release is followed nevertheless, and so ends."""
    return values | {"child": None}


_read_followed = RowDecoder(FollowedRow, "release", id="parent", repair=_skip_edge).read
_read_cancelled = RowDecoder(CancelledChildRow, "job", repair=drop_row).read
_read_judged = RowDecoder(JudgedRow, "edge", id="child", repair=drop_row).read
read_parents = RowDecoder(ParentRow, "job").read
read_releases = RowDecoder(ReleaseRow, "release", id="parent", repair=drop_row).read
_decode_met = msgspec.json.Decoder(tuple[int | None, list[JobId]]).decode


class SqliteAdvancer:
    def __init__(self, sql: EngineStatements, completion: SqliteCompletionWriter) -> None:
        self._sql = sql.dependencies
        self._jobs = sql.jobs
        self._completion = completion

    def advance(self, write: WriteContext) -> bool:
        """One step; whether there is more. What a cancellation leaves is followed at once, as far as the step goes."""
        left = MAX_ADVANCED
        for _ in range(_MAX_ROUNDS):
            followed, is_more = self._follow(write, left)
            left -= followed
            if not is_more:
                return False
            if left <= 0:
                break
        return True

    def _follow(self, write: WriteContext, limit: int) -> tuple[int, bool]:
        """Follow at most so many edges; how many there were, and whether there is more."""
        db = write.db
        found = _read_followed(db, self._sql.to_follow, {"limit": limit + 1})
        if not found:
            return 0, False
        plan = plan_advance(found, limit)
        may_leave_more = bool(plan.cancelled or plan.revived)
        if plan.cancelled:
            self._cancel_for_parents(write, plan.cancelled)
        if plan.met:
            may_leave_more |= self._meet(write, plan.met)
        if plan.revived:
            self._revive(write, plan.revived)
        if plan.done:
            db.run(self._sql.delete_releases, {"seq": plan.done[-1]})
        if plan.partial is not None:
            seq, count = plan.partial
            db.run(self._sql.set_followed, {"seq": seq, "count": count})
        return plan.followed, plan.is_cut or (may_leave_more and self.has_releases(db))

    def has_releases(self, db: SqliteConnection) -> bool:
        return bool(db.value(self._jobs.has_releases))

    def leave_discarded(self, write: WriteContext, ids: str) -> None:
        """Leave releases of these dead letters, which are about to be discarded; ids: JSON."""
        write.has_releases |= write.db.run(self._sql.leave_discarded, {"ids": ids}) > 0

    def leave_revived(self, write: WriteContext, ids: str) -> None:
        """Leave releases of these jobs, which live again; ids: JSON."""
        write.has_releases |= write.db.run(self._sql.leave_revived, {"ids": ids}) > 0

    def cancel_at_once(
        self, write: WriteContext, failed: Sequence[tuple[JobId, Failure]], parents: Sequence[tuple[JobId, JobId]] = ()
    ) -> None:
        """Cancel those of these jobs that wait for parents, or have no open ones. `parents`: child, and parent whose replay
        makes it wait again."""
        db = write.db
        moved = db.run_rows(self._sql.cancel_children, 2, [(id, as_json(error)) for id, error in failed], (write.now,))
        if not moved:
            return
        last = db.last_rowid - moved
        if parents:
            db.run_rows(self._sql.insert_cancelled_children, 2, parents, (last,))
        self._completion.delete_ended(write, self._jobs.delete_finished, {"seq": last})

    def _cancel_for_parents(self, write: WriteContext, cancelled: dict[JobId, tuple[JobId, ParentEvent]]) -> None:
        wanted = {"ids": as_json(sorted({parent for parent, _ in cancelled.values()}))}
        tasks = {row.id: row.task for row in read_parents(write.db, self._sql.parents, wanted)}
        failed = [
            (child, parent_failure(parent, tasks.get(parent, ""), event))
            for child, (parent, event) in cancelled.items()
        ]
        self.cancel_at_once(write, failed, [(child, parent) for child, (parent, _) in cancelled.items()])

    def _meet(self, write: WriteContext, met: dict[JobId, int]) -> bool:
        """Whether the children of a cancelled workflow were cancelled instead."""
        write.db.run_rows(self._sql.meet, 2, list(met.items()), (write.now,))
        try:
            earliest, overtaken = _decode_met(write.db.value(self._sql.met, {"ids": as_json(list(met))}))
        except UNREADABLE:  # one of them was damaged: its claim says so
            earliest, overtaken = write.now, []
        if overtaken:
            self.cancel_at_once(write, [(id, WORKFLOW_CANCELLED) for id in overtaken])
        if earliest is not None:
            write.notify(earliest)
        return bool(overtaken)

    def _revive(self, write: WriteContext, revived: Sequence[tuple[JobId, JobId]]) -> None:
        """Make children wait again that were cancelled because these parents, which live again, had failed."""
        db = write.db
        found = _read_cancelled(db, self._sql.cancelled_children, {"pairs": as_json(revived)})
        if not found:
            return
        edges = _read_judged(db, self._sql.edges_of_children, {"ids": as_json([child.id for child in found])})
        parents = {"ids": as_json(sorted({edge.parent for edge in edges}))}
        releases = read_releases(db, self._sql.releases_of, parents)
        keys = load_unique_keys(self._jobs, write, unique_keys(found))
        plan = plan_revivals(found, edges, releases, keys)
        if plan.held:
            db.run_rows(self._sql.replace_cancelled_children, 2, list(plan.held.items()))
        if not plan.revived:
            return
        ids = as_json(list(plan.revived))
        db.run_rows(self._sql.revive, 2, list(plan.revived.items()), (write.now,))
        db.run(self._sql.keep_revived, {"ids": ids})
        db.run(self._sql.forget_cancelled, {"ids": ids})
        db.run(self._sql.delete_revived, {"ids": ids})
        self._completion.inserter.enter_lanes(write, list(plan.revived))
        self.leave_revived(write, ids)
        if 0 in plan.revived.values():
            write.notify(write.now)
