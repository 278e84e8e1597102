"""Lines and lanes on PostgreSQL: what is declared, set by hand, listed, swept. The contract is in `store.protocol.LimitStore`;
claims are in lane_claim.py.

Policies change under a lock that claims of lanes hold shared, so that no claim goes by an old one once the change is
committed. Then lanes are told in pieces; the line remembers that until it is done, and whoever declares or sweeps next goes on.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from drumbeat.core.lanes import LaneState, bounds_of, is_limited, lane_name
from drumbeat.core.limits import (
    NO_LIMIT,
    Bounds,
    GroupInfo,
    LineChange,
    LineDeclaration,
    LineInfo,
    LinePolicy,
    Starts,
    drop_old_starts,
    effective_policy,
    find_opening,
)
from drumbeat.store.postgres.connections import LONG_TIMEOUT, PlanMode, Session
from drumbeat.store.postgres.limit_rows import decode_change, decode_policy, decode_starts, group_info, line_info
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.postgres.rows import to_columns
from drumbeat.store.records import as_json

_MAX_LANES_AT_ONCE = 1_000
_MAX_NEWS = 10_000
_NOTHING, _LIMITS, _ORDER = 0, 1, 2
"""What lanes are to be told: `untold` of a line."""


class _Line(NamedTuple):
    """A line as it is stored, or is to be."""

    policy: LinePolicy
    declared: LinePolicy
    version: int
    change: LineChange | None = None
    starts: Starts = ()
    is_limited: bool = False
    """As a whole, so that its running jobs are counted."""
    untold: int = _NOTHING


_Lines = dict[tuple[str, str], _Line]


class PostgresLimits:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.limits
        self._jobs_sql = parts.sql.jobs
        self._schema_sql = parts.sql.schema
        self._connection = parts.connection
        self._report_connection = parts.report_connection
        self._notifier = parts.notifier
        self._last_counted = ("", "")

    async def declare(self, lines: Sequence[LineDeclaration], version: int) -> None:
        if not lines:
            return
        queues = list(dict.fromkeys(line.queue for line in lines))
        known = await self._connection.call(lambda session: self._load(queues, session))
        if any(_is_news(known.get((line.queue, line.line)), line.policy, version) for line in lines):
            await self._connection.transact(partial(self._declare, queues, lines, version))
        await self._tell_all()

    async def change(self, queue: str, line: str, change: LineChange | None, *, by: str, reason: str) -> bool:
        if not await self._connection.transact(partial(self._change, queue, line, change, by, reason)):
            return False
        await self._tell_all()
        return True

    async def change_group(
        self, queue: str, line: str, group: str, *, bounds: Bounds | None, weight: int | None
    ) -> bool:
        lane = LaneState(lane_name(line, group), own_bounds=bounds, own_weight=weight)

        async def work(session: Session) -> bool:
            await session.execute(self._sql.lock_policies)
            found = (await self._load([queue], session)).get((queue, line))
            if found is None:
                return False
            facts = (
                *(queue, lane.name, line, None if bounds is None else as_json(bounds), weight),
                _concurrency(bounds_of(lane, found.policy)),
            )
            await session.execute(self._sql.change_group, *facts)
            return True

        changed = await self._connection.transact(work)
        if changed:
            await self._notify()
        return changed

    async def list_lines(self) -> list[LineInfo]:
        # Every worker asks, and needs no connection more for it.
        rows = await self._connection.call(lambda session: session.fetch(self._sql.lines))
        return [line_info(row) for row in rows]

    async def list_groups(
        self, queue: str, line: str, *, after: str | None = None, limit: int = 100
    ) -> list[GroupInfo]:
        start = None if after is None else lane_name(line, after)
        await self._fold([queue])
        return await self._load_groups(self._sql.groups, queue, line, start, limit)

    async def find_groups(self, lanes: Sequence[tuple[str, str]]) -> list[GroupInfo | None]:
        if not lanes:
            return []
        await self._fold(sorted({queue for queue, _ in lanes}))
        found = await self._load_groups(self._sql.groups_of_lanes, *to_columns(dict.fromkeys(lanes)))
        by_lane = {(each.queue, lane_name(each.line, each.group)): each for each in found}
        return [by_lane.get(lane) for lane in lanes]

    async def busiest_groups(self, limit: int) -> list[GroupInfo]:
        await self._fold(sorted({line.queue for line in await self.list_lines()}))
        rows = await self._report_connection.call(
            lambda session: session.fetch(self._sql.busiest_lanes, limit), timeout=LONG_TIMEOUT
        )
        found = await self.find_groups([(row["queue"], row["name"]) for row in rows])
        return [each for each in found if each is not None]

    async def sweep(self, idle_before: int, limit: int) -> tuple[int, int]:
        await self._fold(sorted({line.queue for line in await self.list_lines()}))
        await self._tell_all()
        deleted = await self._connection.transact(partial(self._delete_idle, idle_before, limit))
        corrected = await self._connection.transact(partial(self._count_lanes, limit))
        corrected += await self._connection.transact(self._count_lines)
        if corrected:
            await self._notify()
        return deleted, corrected

    async def _load(self, queues: Sequence[str], session: Session) -> _Lines:
        rows = await session.fetch(self._sql.policies, list(queues))
        return {
            (row["queue"], row["name"]): _Line(
                policy=decode_policy(row["policy"]),
                declared=decode_policy(row["declared"]),
                version=row["version"],
                change=None if row["override"] is None else decode_change(row["override"]),
                starts=decode_starts(row["starts"]),
                is_limited=row["is_limited"],
            )
            for row in rows
        }

    async def _declare(
        self, queues: Sequence[str], lines: Sequence[LineDeclaration], version: int, session: Session
    ) -> None:
        await session.execute(self._sql.lock_policies)
        known = await self._load(queues, session)
        wanted = dict(known)
        for each in lines:
            place = (each.queue, each.line)
            before = known.get(place)
            if not _is_news(before, each.policy, version):
                continue
            if before is None:
                wanted[place] = _Line(each.policy, each.policy, version)
            else:
                policy = effective_policy(each.policy, before.change)
                wanted[place] = before._replace(declared=each.policy, version=version, policy=policy)
        await self._save(known, wanted, session)

    async def _change(
        self, queue: str, line: str, change: LineChange | None, by: str, reason: str, session: Session
    ) -> bool:
        await session.execute(self._sql.lock_policies)
        known = await self._load([queue], session)
        before = known.get((queue, line))
        if before is None:
            return False
        override = None if change is None else as_json(change)
        await session.execute(self._sql.save_change, queue, line, override, by, reason)
        policy = effective_policy(before.declared, change)
        await self._save(known, known | {(queue, line): before._replace(policy=policy)}, session)
        return True

    async def _save(self, known: _Lines, wanted: _Lines, session: Session) -> None:
        """Store lines, with what follows from their policies. The line "" of a queue changes what holds for the others."""
        now = await session.fetchval(self._schema_sql.now)
        rows = []
        uncounted = []
        for (queue, name), line in sorted(wanted.items()):
            before, whole = known.get((queue, name)), wanted.get((queue, ""))
            policy, limits = line.policy, line.policy.whole
            if not limits.is_open and (before is None or not before.is_limited):
                uncounted.append((queue, name))
            rows.append(
                (
                    *(queue, name, as_json(policy), as_json(line.declared), line.version, not limits.is_open),
                    is_limited(policy, None if whole is None else whole.policy),
                    *(_concurrency(limits), find_opening(limits, line.starts, now)),
                    _untold(None if before is None else before.policy, policy),
                )
            )
        await session.execute(self._sql.save_policies, *to_columns(rows))
        if uncounted:
            await session.fetch(self._sql.count_lines, *to_columns(uncounted))

    async def _tell_all(self) -> None:
        """Let lanes stand under limits that have changed, and wake workers."""
        lines = await self._connection.call(lambda session: session.fetch(self._sql.untold_lines))
        for row in lines:
            last: str | None = ""
            while last is not None:
                place = (row["queue"], row["name"], row["policy"])
                last = await self._connection.transact(partial(self._tell, *place, last))
        if lines:
            await self._notify()

    async def _tell(self, queue: str, line: str, first_policy: str, after: str, session: Session) -> str | None:
        """Tell a piece of the lanes of a line; the last of them, or None: there are no more. Not while policies change: older
        limits must not be written after newer ones."""
        await session.execute(self._sql.lock_policies_shared)
        found = await session.fetchrow(self._sql.untold_line, queue, line)
        if found is None:
            return None
        policy = decode_policy(found["policy"])
        lanes = await session.fetch(self._sql.lock_lanes_of_line, queue, line, after, _MAX_LANES_AT_ONCE)
        facts = (_concurrency(policy.each), bool(policy.order), found["untold"] == _ORDER)
        await session.execute(self._sql.tell_lanes, [lane["place"] for lane in lanes], *facts)
        if len(lanes) == _MAX_LANES_AT_ONCE:
            last: str = lanes[-1]["name"]
            return last
        await session.execute(self._sql.set_told, queue, line, first_policy)
        return None

    async def _delete_idle(self, idle_before: int, limit: int, session: Session) -> int:
        rows = await session.fetch(self._sql.lock_idle_lanes, idle_before, limit)
        idle: list[str] = []
        kept: list[str] = []
        for row in rows:
            # What a rate still counts would start again.
            counts = row["policy"] is not None and drop_old_starts(
                decode_policy(row["policy"]).each, decode_starts(row["starts"]), row["now"]
            )
            (kept if counts else idle).append(row["place"])
        await session.execute(self._sql.delete_lanes, idle)
        await session.execute(self._sql.keep_lanes, kept)
        return len(idle)

    async def _count_lanes(self, limit: int, session: Session) -> int:
        """Compare some lanes, going on where the last call ended."""
        rows = await session.fetch(self._sql.lock_lanes, *self._last_counted, limit)
        self._last_counted = (rows[-1]["queue"], rows[-1]["name"]) if len(rows) == limit else ("", "")
        if not rows:
            return 0
        columns = to_columns((row["place"], row["queue"], row["name"]) for row in rows)
        return len(await session.fetch(self._sql.count_lanes, *columns))

    async def _count_lines(self, session: Session) -> int:
        rows = await session.fetch(self._sql.lock_limited_lines)
        return len(await session.fetch(self._sql.count_lines, *to_columns(rows))) if rows else 0

    async def _fold(self, queues: list[str]) -> None:
        """Make the lanes of new jobs, in case no worker has looked."""
        if queues:
            await self._connection.call(
                lambda session: session.fetch(self._jobs_sql.open_lanes, queues, 0, _MAX_NEWS), plan_mode=PlanMode.ANY
            )

    async def _load_groups(self, statement: str, *facts: Any) -> list[GroupInfo]:
        rows = await self._report_connection.call(
            lambda session: session.fetch(statement, *facts), timeout=LONG_TIMEOUT
        )
        return [group_info(row) for row in rows]

    async def _notify(self) -> None:
        self._notifier.notify(0)
        await self._notifier.flush()


def _is_news(known: _Line | None, policy: LinePolicy, version: int) -> bool:
    return known is None or known.version < version or (known.version == version and known.declared != policy)


def _untold(before: LinePolicy | None, policy: LinePolicy) -> int:
    if before is None or before == policy:
        return _NOTHING
    return _LIMITS if before.order == policy.order else _ORDER


def _concurrency(bounds: Bounds) -> int:
    return NO_LIMIT if bounds.concurrency is None else bounds.concurrency
