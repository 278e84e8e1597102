"""Searches jobs on Redis. How far a search goes is decided in `store.job_search`.

There is no index for people: ids are walked from the newest on, and a script says which of them are wanted, so many in one call
that a search never keeps the server from its work. What is in a small set (what runs, the live jobs of a key, a view of few)
or in a line of its own (dead letters, cancelled ones) is found without a walk.
"""

import heapq
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import msgspec

from drumbeat.core.job import LIVE_STATES, Job, JobState, PendingView
from drumbeat.core.job_query import JobCounts, JobFilter, JobPage, WaitCounts
from drumbeat.ids import JobId, pack_id, unpack_id
from drumbeat.store import job_search
from drumbeat.store.job_search import IdSpan, Matches, ScanResult
from drumbeat.store.redis import record_format, rows
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.keys import bucket as bucket_of
from drumbeat.store.redis.pool import RedisPool

BATCH_SIZE = 500
"""Jobs that one call examines: a few milliseconds."""
MAX_SCANNED = 1_000
"""Of a page; fewer than on other engines, because a job costs more here and the server is blocked meanwhile."""
_IDS_PER_CALL = 500
_ID_BYTES = 16
"""Bytes of an id."""
_MAX_RETRYING_SCANNED = 2_000
"""Jobs with a live state that are examined to count those that are retrying."""
_MAX_SUSPENDED_SCANNED = 100_000
"""The same for those that are suspended, in pages: metrics count them, which are read a few times a minute."""
_SUSPENDED_PAGE = 1_000

_LONG_FIELDS = ("args", "progress", "result")

Ids = AsyncIterator[list[bytes]]
"""Newest first, bounded only by the span."""


class RedisSearch:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool

    async def find_page(self, filter: JobFilter) -> JobPage:
        max_scanned = min(job_search.MAX_SCANNED, MAX_SCANNED)
        looks = await self._search(filter, filter.limit, max(filter.limit, max_scanned), with_words=False)
        ids, following = job_search.merge_page(looks, filter.limit)
        return JobPage(items=await self.load_jobs([pack_id(id) for id in ids], filter.preview), next=following)

    async def count_jobs(self, filter: JobFilter) -> JobCounts:
        if job_search.is_unfiltered(filter):
            return await self._count_all()
        if job_search.is_all_dead_letters(filter):
            return JobCounts(dead=await self._pool.command("ZCARD", self._pool.keys.dead))
        filter = msgspec.structs.replace(filter, before=None)
        return job_search.count_matches(
            await self._search(filter, 3 * job_search.MAX_COUNTED, job_search.MAX_COUNTED, with_words=True)
        )

    async def count_waits(self) -> WaitCounts:
        parents, cursor, scanned, signal, sleep = 0, b"0", 0, 0, 0
        while scanned < _MAX_SUSPENDED_SCANNED:
            parents, cursor, size, signals, sleeps = await self._pool.run("count_suspended", cursor, _SUSPENDED_PAGE)
            scanned, signal, sleep = scanned + size, signal + signals, sleep + sleeps
            if cursor == b"0":
                break
        return WaitCounts(parents=parents, signal=signal, sleep=sleep, capped=cursor != b"0")

    async def find_ids(self, filter: JobFilter) -> list[bytes]:
        """Return the ids of a page."""
        looks = await self._search(filter, filter.limit, filter.limit, with_words=False)
        return [pack_id(id) for id in job_search.merge_page(looks, filter.limit)[0]]

    async def load_jobs(self, ids: Sequence[bytes], preview: int | None = None) -> list[Job]:
        """A job pruned meanwhile is missing."""
        found = await rows.load_jobs(self._pool, ids, preview)
        jobs = [rows.decode_job(id, answer) for id, answer in found]
        return jobs if preview is None else [_shorten(job, preview) for job in jobs]

    async def _count_all(self) -> JobCounts:
        ready, future, retrying, waiting, running, capped, counters = await self._pool.run(
            "count_jobs", _MAX_RETRYING_SCANNED
        )
        ended = {"succeeded": 0, "dead": 0, "cancelled": 0, "expired": 0}
        for field, number in record_format.pairs(counters):
            what = field.decode("utf-8", "replace").rpartition("\0")[2]
            if what in ended:
                ended[what] += record_format.int_or_zero(number)
        return JobCounts(
            ready=ready,
            scheduled=max(0, future - retrying),
            retrying=retrying,
            waiting=waiting,
            running=running,
            **ended,
            capped=bool(capped),
        )

    async def _search(self, filter: JobFilter, limit: int, max_scanned: int, *, with_words: bool) -> list[ScanResult]:
        within = job_search.id_span(filter)
        if within is None or filter.limit <= 0 or not job_search.access_paths(filter):
            return []
        keys, state = self._pool.keys, filter.state
        if filter.parent is not None:
            children = self._iterate_indexes([keys.children(pack_id(filter.parent))], within)
            return [await self._scan(children, filter, limit, max_scanned, with_words)]
        if filter.workflow is not None and not filter.dead_letters:
            members = self._iterate_indexes([keys.workflow_jobs(filter.workflow)], within)
            return [await self._scan(members, filter, limit, max_scanned, with_words)]
        # In the order in which a discarded letter moves, so that it is found in one of them.
        lines: dict[JobState | None, list[str]] = {
            JobState.CANCELLED: [keys.unsucceeded],
            JobState.EXPIRED: [keys.unsucceeded],
            JobState.DEAD: [keys.dead, keys.unsucceeded],
        }
        if filter.live or filter.view is not None or state in LIVE_STATES:
            return [await self._scan_live(filter, within, limit, max_scanned, with_words)]
        if indexes := [keys.dead] if filter.dead_letters else lines.get(state):
            return [await self._scan(self._iterate_indexes(indexes, within), filter, limit, max_scanned, with_words)]
        if state is None and filter.error is not None:
            # A succeeded job has no error; a live job with an error was claimed before.
            live = await self._pool.run("list_live_ids", "retrying", job_search.MAX_SMALL_SET, "")
            if live is not None:
                ended = await self._scan(
                    self._iterate_indexes(lines[JobState.DEAD], within), filter, limit, max_scanned, with_words
                )
                return [ended, ScanResult(await self._filter_set(live, filter, within), None)]
        return [await self._scan(self._iterate_all(within), filter, limit, max_scanned, with_words)]

    async def _scan_live(
        self, filter: JobFilter, within: IdSpan, limit: int, max_scanned: int, with_words: bool
    ) -> ScanResult:
        """Choose the access path: a short scan finds enough of frequent jobs, rare ones form a small set."""
        short, found = min(max_scanned, job_search.FIRST_SCAN), list[tuple[JobId, str]]()
        if not (with_words or self._is_small_set(filter)):
            look = await self._scan(self._iterate_all(within), filter, limit, short, with_words)
            if look.scanned_to is None or len(look.matches) >= limit or short == max_scanned:
                return look
            found, within = look.matches, IdSpan(within.low, job_search.previous_id(look.scanned_to))
        few = await self._list_small_set(filter)
        if few is not None:
            return ScanResult(found + await self._filter_set(few, filter, within), None)
        look = await self._scan(self._iterate_all(within), filter, limit - len(found), max_scanned, with_words)
        return ScanResult(found + look.matches, look.scanned_to)

    def _is_small_set(self, filter: JobFilter) -> bool:
        """Whether the set is nearly always small."""
        is_few = filter.state is JobState.RUNNING or filter.view in (PendingView.RETRYING, PendingView.WAITING)
        return is_few or filter.instance is not None or filter.key is not None

    async def _list_small_set(self, filter: JobFilter) -> list[bytes] | None:
        """Return all candidates, if they form a small set."""
        found: list[bytes] | None
        is_running = filter.state is JobState.RUNNING or filter.instance is not None
        if filter.key is not None and not is_running:
            found = await self._pool.run("list_ids_of_key", filter.task or "", filter.key, job_search.MAX_SMALL_SET)
        else:
            which = "running" if is_running else "pending" if filter.view is None else filter.view.value
            found = await self._pool.run("list_live_ids", which, job_search.MAX_SMALL_SET, filter.queue or "")
        return found

    async def _scan(self, ids: Ids, filter: JobFilter, limit: int, max_scanned: int, with_words: bool) -> ScanResult:
        found: Matches = []
        looked, ask = 0, with_words or any(_filter_arguments(filter))
        async with aclosing(ids) as pages:  # type: ignore[type-var]
            async for page in pages:
                some = page[: max_scanned - looked]
                if ask:
                    found += await self._filter(some, filter)
                else:
                    found += [(id, "") for id in map(unpack_id, some) if job_search.has_suffix(filter, id)]
                looked += len(some)
                if looked >= max_scanned or len(found) >= limit:
                    return ScanResult(found, unpack_id(some[-1]))
        return ScanResult(found, None)

    async def _filter_set(self, ids: Sequence[bytes], filter: JobFilter, within: IdSpan) -> Matches:
        low, high = pack_id(within.low), pack_id(within.high)
        wanted = sorted({id for id in ids if low <= id <= high and len(id) == _ID_BYTES}, reverse=True)
        found: Matches = []
        for first in range(0, len(wanted), BATCH_SIZE):
            found += await self._filter(wanted[first : first + BATCH_SIZE], filter)
        return found

    async def _filter(self, ids: Sequence[bytes], filter: JobFilter) -> Matches:
        ids = [id for id in ids if job_search.has_suffix(filter, unpack_id(id))] if filter.id_end else ids
        found: Matches = []
        while ids:
            looked, *flat = await self._pool.run("filter_jobs", *_filter_arguments(filter), rows.MAX_READ_BYTES, *ids)
            found += [(unpack_id(id), word.decode()) for id, word in record_format.pairs(flat)]
            ids = ids[looked:]
        return found

    async def _iterate_indexes(self, indexes: Sequence[str | bytes], within: IdSpan) -> Ids:
        """Scan these sets, which are ordered by id."""
        low, high = b"[" + pack_id(within.low), b"[" + pack_id(within.high)
        while True:
            pages = await self._pool.pipeline(
                [("ZREVRANGEBYLEX", line, high, low, "LIMIT", 0, _IDS_PER_CALL) for line in indexes]
            )
            ids = heapq.nlargest(_IDS_PER_CALL, {id for page in pages for id in page})
            if not ids:
                return
            if known := [id for id in ids if len(id) == _ID_BYTES]:
                yield known
            high = b"(" + ids[-1]

    async def _iterate_all(self, within: IdSpan) -> Ids:
        """Scan all ids."""
        low, high = pack_id(within.low), pack_id(within.high)
        begin, last = str(int(bucket_of(high), 16)).encode(), int(bucket_of(low), 16)
        size = _IDS_PER_CALL
        while begin:
            begin, *flat = await self._pool.run("list_job_ids", begin, last, size)
            page: list[bytes] = []
            for bucket, entries in record_format.pairs(flat):
                async for ids in self._iterate_bucket(bucket.decode(), entries, low, high):
                    page += ids
                    while len(page) >= size:
                        yield page[:size]
                        page, size = page[size:], BATCH_SIZE
            if page:
                yield page

    async def _iterate_bucket(self, bucket: str, entries: Sequence[bytes], low: bytes, high: bytes) -> Ids:
        """Return the ids of a bucket. A run is fetched once no larger id is left."""
        candidates = {entry for entry in entries if len(entry) == 16 and low <= entry <= high}
        runs = sorted(
            (
                (entry[16:32], entry[:32])
                for entry in entries
                if len(entry) > 16 and entry[:16] <= high and entry[16:32] >= low
            ),
            reverse=True,
        )
        top = high
        for at, (_, ends) in enumerate(runs):
            floor = runs[at + 1][0] if at + 1 < len(runs) else b""
            text: bytes | None = await self._pool.command("HGET", self._pool.keys.runs(bucket), ends)
            if text is None:
                # Most of the bucket was deleted meanwhile and the rest was listed anew.
                left: list[bytes] = await self._pool.command("HKEYS", self._pool.keys.jobs(bucket))
                candidates = {id for id in left if low <= id <= top}
                break
            candidates.update(
                id for first in range(0, len(text), 16) if low <= (id := text[first : first + 16]) <= high
            )
            ready = sorted((id for id in candidates if id > floor), reverse=True)
            if ready:
                yield ready
                candidates = {id for id in candidates if id <= floor}
            top = floor
        if candidates:
            yield sorted(candidates, reverse=True)


def _shorten(job: Job, preview: int) -> Job:
    cut = {
        name: text[:preview]
        for name in _LONG_FIELDS
        if (text := getattr(job, name)) is not None and len(text) > preview
    }
    return msgspec.structs.replace(job, **cut) if cut else job


def _filter_arguments(filter: JobFilter) -> list[Value]:
    """Return the filter arguments of the script `filter_jobs`."""
    part = filter.error or ""
    return [
        filter.state.value if filter.state is not None else "live" if filter.live else "",
        "" if filter.view is None else filter.view.value,
        filter.task or "",
        filter.queue or "",
        filter.key or "",
        part,
        msgspec.json.encode(part)[1:-1].decode(),
        filter.schedule or "",
        filter.instance or "",
        filter.workflow or "" if filter.parent is not None or filter.dead_letters else "",
    ]
