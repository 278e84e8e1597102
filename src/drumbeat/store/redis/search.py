"""How jobs are searched on Redis. How far a search looks is said in `store.searching`.

There is no index for people: ids are walked from the newest on, and a script says which of them are wanted, so many in one call
that a search never keeps the server from its work. What is in a small set (what runs, the live jobs of a key, a view of few)
or in a line of its own (dead letters, cancelled ones) is found without a walk.
"""

import heapq
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import msgspec

from drumbeat.ids import JobId, packed, unpacked
from drumbeat.model.job import LIVE, Job, JobCounts, JobFilter, JobPage, JobState, View
from drumbeat.store import searching
from drumbeat.store.redis import rows, texts
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.keys import bucket as bucket_of
from drumbeat.store.redis.line import Value
from drumbeat.store.searching import Found, Look, Span

AT_ONCE = 500
"""Jobs that one call looks at: a few milliseconds."""
LOOKED_AT = 1_000
"""Of a page; fewer than on other engines, because one job costs more here, and the server does nothing else meanwhile."""
_RECORDS = 500
_ID = 16
"""Bytes of an id: what is of another length is none."""
_READ = 8 * 1024 * 1024
"""Bytes of jobs that one call reads to look at them or for previews: a few milliseconds."""
_TRIED = 2_000
"""Of those that were claimed before, so many are looked at for those that are retrying."""

_LONG = ("args", "progress", "result")

Ids = AsyncIterator[list[bytes]]
"""Newest first, without end but that of the span."""


class RedisSearch:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def page(self, filter: JobFilter) -> JobPage:
        most = min(searching.LOOKED_AT, LOOKED_AT)
        looks = await self._looks(filter, filter.limit, max(filter.limit, most), words=False)
        ids, following = searching.newest(looks, filter.limit)
        return JobPage(items=await self.records([packed(id) for id in ids], filter.preview), next=following)

    async def counts(self, filter: JobFilter) -> JobCounts:
        if searching.is_open(filter):
            return await self._count_all()
        if searching.is_letters(filter):
            return JobCounts(dead=await self._link.command("ZCARD", self._link.keys.dead))
        filter = msgspec.structs.replace(filter, before=None)
        return searching.tally(await self._looks(filter, 3 * searching.COUNTED, searching.COUNTED, words=True))

    async def ids(self, filter: JobFilter) -> list[bytes]:
        """Those of a page, without their records."""
        looks = await self._looks(filter, filter.limit, filter.limit, words=False)
        return [packed(id) for id in searching.newest(looks, filter.limit)[0]]

    async def records(self, ids: Sequence[bytes], preview: int | None = None) -> list[Job]:
        if preview is not None:
            return await self._previews(ids, preview)
        found: list[Job] = []
        for first in range(0, len(ids), _RECORDS):
            page = ids[first : first + _RECORDS]
            _, *answers = await self._link.run("inspect_records", *page)
            # One that was pruned meanwhile is not there.
            found += [
                rows.job(unpacked(id), answer) for id, answer in zip(page, answers, strict=True) if answer is not None
            ]
        return found

    async def _previews(self, ids: Sequence[bytes], preview: int) -> list[Job]:
        found: list[Job] = []
        while ids:
            page = ids[:_RECORDS]
            # A character has at most four bytes.
            answers = await self._link.run("inspect_previews", 4 * preview, _READ, *page)
            for id, answer in zip(page, answers, strict=False):
                if answer is not None:
                    found.append(_shortened(rows.job(unpacked(id), answer), preview))
            ids = ids[len(answers) :]
        return found

    async def _count_all(self) -> JobCounts:
        ready, future, retrying, waiting, running, capped, counters = await self._link.run("inspect_counts", _TRIED)
        ended = {"succeeded": 0, "dead": 0, "cancelled": 0}
        for field, number in texts.pairs(counters).items():
            what = field.decode("utf-8", "replace").rpartition("\0")[2]
            if what in ended:
                ended[what] += texts.number_or_0(number)
        return JobCounts(
            ready=ready,
            scheduled=max(0, future - retrying),
            retrying=retrying,
            waiting=waiting,
            running=running,
            **ended,
            capped=bool(capped),
        )

    async def _looks(self, filter: JobFilter, enough: int, most: int, *, words: bool) -> list[Look]:
        within = searching.span(filter)
        if within is None or filter.limit <= 0 or not searching.ways(filter):
            return []
        keys, state = self._link.keys, filter.state
        # In the order in which a letter goes that is discarded, so that it is met in one of them.
        lines = {JobState.CANCELLED: [keys.unsucceeded], JobState.DEAD: [keys.dead, keys.unsucceeded]}
        if filter.view is not None or state in LIVE:
            return [await self._look_at_live(filter, within, enough, most, words)]
        if filter.letters:
            return [await self._look(self._in_lines([keys.dead], within), filter, enough, most, words)]
        if state in lines:
            return [await self._look(self._in_lines(lines[state], within), filter, enough, most, words)]
        if state is None and filter.error is not None:
            # Who has succeeded has no error; who is live and has one was claimed before.
            live = await self._link.run("inspect_pending", "retrying", searching.FEW, "")
            if live is not None:
                ended = await self._look(self._in_lines(lines[JobState.DEAD], within), filter, enough, most, words)
                return [ended, Look(await self._chosen_of(live, filter, within), None)]
        return [await self._look(self._walk(within), filter, enough, most, words)]

    async def _look_at_live(self, filter: JobFilter, within: Span, enough: int, most: int, words: bool) -> Look:
        """Of what there is much, a short walk finds enough; of what there is little, the set is small."""
        short, found = min(most, searching.FIRST_LOOK), list[tuple[JobId, str]]()
        if not (words or self._is_small(filter)):
            look = await self._look(self._walk(within), filter, enough, short, words)
            if look.end is None or len(look.found) >= enough or short == most:
                return look
            found, within = look.found, Span(within.low, searching.below(look.end))
        few = await self._few(filter)
        if few is not None:
            return Look(found + await self._chosen_of(few, filter, within), None)
        look = await self._look(self._walk(within), filter, enough - len(found), most, words)
        return Look(found + look.found, look.end)

    def _is_small(self, filter: JobFilter) -> bool:
        """Whether the set that `_few` gives is nearly always small."""
        is_few = filter.state is JobState.RUNNING or filter.view in (View.RETRYING, View.WAITING)
        return is_few or filter.instance is not None or filter.key is not None

    async def _few(self, filter: JobFilter) -> list[bytes] | None:
        """All that may be wanted, if that is a small set."""
        found: list[bytes] | None
        if filter.state is JobState.RUNNING or filter.instance is not None:
            found = await self._link.run("inspect_running")
        elif filter.key is not None:
            found = await self._link.run("inspect_key", filter.task or "", filter.key, searching.FEW)
        else:
            which = "pending" if filter.view is None else filter.view.value
            found = await self._link.run("inspect_pending", which, searching.FEW, filter.queue or "")
        return found

    async def _look(self, ids: Ids, filter: JobFilter, enough: int, most: int, words: bool) -> Look:
        found: Found = []
        looked, ask = 0, words or any(_wanted(filter))
        async with aclosing(ids) as pages:  # type: ignore[type-var]
            async for page in pages:
                some = page[: most - looked]
                if ask:
                    found += await self._chosen(some, filter)
                else:
                    found += [(id, "") for id in map(unpacked, some) if searching.ends_so(filter, id)]
                looked += len(some)
                if looked >= most or len(found) >= enough:
                    return Look(found, unpacked(some[-1]))
        return Look(found, None)

    async def _chosen_of(self, ids: Sequence[bytes], filter: JobFilter, within: Span) -> Found:
        low, high = packed(within.low), packed(within.high)
        wanted, found = (
            sorted({id for id in ids if low <= id <= high and len(id) == _ID}, reverse=True),
            list[tuple[JobId, str]](),
        )
        for first in range(0, len(wanted), AT_ONCE):
            found += await self._chosen(wanted[first : first + AT_ONCE], filter)
        return found

    async def _chosen(self, ids: Sequence[bytes], filter: JobFilter) -> Found:
        ids = [id for id in ids if searching.ends_so(filter, unpacked(id))] if filter.id_end else ids
        found: Found = []
        while ids:
            looked, *flat = await self._link.run("inspect_chosen", *_wanted(filter), _READ, *ids)
            found += [(unpacked(id), word.decode()) for id, word in zip(flat[::2], flat[1::2], strict=True)]
            ids = ids[looked:]
        return found

    async def _in_lines(self, lines: Sequence[str], within: Span) -> Ids:
        """Those that stand in these, which are in the order of ids."""
        low, high = b"[" + packed(within.low), b"[" + packed(within.high)
        while True:
            pages = await self._link.pipeline(
                [("ZREVRANGEBYLEX", line, high, low, "LIMIT", 0, _RECORDS) for line in lines]
            )
            ids = heapq.nlargest(_RECORDS, {id for page in pages for id in page})
            if not ids:
                return
            if known := [id for id in ids if len(id) == _ID]:
                yield known
            high = b"(" + ids[-1]

    async def _walk(self, within: Span) -> Ids:
        """All that there are."""
        low, high = packed(within.low), packed(within.high)
        begin, last = str(int(bucket_of(high), 16)).encode(), int(bucket_of(low), 16)
        size = _RECORDS
        while begin:
            begin, *flat = await self._link.run("inspect_ids", begin, last, size)
            page: list[bytes] = []
            for bucket, entries in zip(flat[::2], flat[1::2], strict=True):
                async for ids in self._of_bucket(bucket.decode(), entries, low, high):
                    page += ids
                    while len(page) >= size:
                        yield page[:size]
                        page, size = page[size:], AT_ONCE
            if page:
                yield page

    async def _of_bucket(self, bucket: str, entries: Sequence[bytes], low: bytes, high: bytes) -> Ids:
        """The ids of a bucket. A run is fetched when nothing larger than its largest id is left to be told."""
        pool = {entry for entry in entries if len(entry) == 16 and low <= entry <= high}
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
            text: bytes | None = await self._link.command("HGET", self._link.keys.runs(bucket), ends)
            if text is None:
                # Most of the bucket has gone meanwhile, and what is left was listed anew: it is little.
                left: list[bytes] = await self._link.command("HKEYS", self._link.keys.jobs(bucket))
                pool = {id for id in left if low <= id <= top}
                break
            pool.update(id for first in range(0, len(text), 16) if low <= (id := text[first : first + 16]) <= high)
            ready = sorted((id for id in pool if id > floor), reverse=True)
            if ready:
                yield ready
                pool = {id for id in pool if id <= floor}
            top = floor
        if pool:
            yield sorted(pool, reverse=True)


def _shortened(job: Job, preview: int) -> Job:
    cut = {name: text[:preview] for name in _LONG if (text := getattr(job, name)) is not None and len(text) > preview}
    return msgspec.structs.replace(job, **cut) if cut else job


def _wanted(filter: JobFilter) -> list[Value]:
    """The first values of the script `inspect_chosen`."""
    part = filter.error or ""
    return [
        "" if filter.state is None else filter.state.value,
        "" if filter.view is None else filter.view.value,
        filter.task or "",
        filter.queue or "",
        filter.key or "",
        part,
        msgspec.json.encode(part)[1:-1].decode(),
        filter.schedule or "",
        filter.instance or "",
    ]
