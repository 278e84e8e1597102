"""How jobs are searched, apart from any engine: where to look, how far, and what becomes of what was found.

People search while the store works, so no search is without end. A job can be in three places, each in the order of ids:

    live       pending and running        history    ended        dead      the dead letters

Of each place that may hold such jobs ids are walked downwards, so many jobs and no more (`walk`); or a set that holds all that
are wanted (all that run, all of a key, all that are ready ...) is looked at as a whole, if it is small (`few`). Where a walk
ended early, nothing below is told, and the page says where to go on. Everything that bounds ids (before, since, until, the
beginning of an id) is one span of them.

`Search` asks questions and is given answers; it does no I/O, so that an engine may drive it from a thread or from a loop.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from drumbeat.clock import Clock
from drumbeat.core.job import LIVE_STATES, JobState, PendingView
from drumbeat.core.job_query import JobCounts, JobFilter, QueueStats, TaskStats
from drumbeat.ids import JobId, is_job_id

MAX_SMALL_SET = 2_000
"""A set of so many is looked at as a whole; in a larger one, a walk soon finds enough."""
FIRST_SCAN = 500
MAX_SCANNED = 2_500
"""Jobs of one place that a page looks at, at most: about 10 ms. (What ended early in one place is not looked at in another.)"""
MAX_COUNTED = 10_000
"""Jobs of one place that a count with a filter looks at, at most."""

WHOLE_TEXT = 2**31 - 1
"""As the length of a preview: all of it."""
_OFTEN_LARGE_SETS = frozenset({"few_ready", "few_future", "few_unsucceeded"})
_IDS = 1 << 128
_HEX = frozenset("0123456789abcdef")
_NO_FILTER = {"before": None, "limit": 50, "preview": None}


class IdSpan(msgspec.Struct, frozen=True):
    """Ids from `low` to `high`, both included."""

    low: JobId
    high: JobId


def id_span(filter: JobFilter) -> IdSpan | None:
    """The ids that the filter allows; None: there can be none."""
    low, high = 0, _IDS - 1
    if filter.before is not None:
        if not is_job_id(filter.before):
            return None
        high = _number(filter.before) - 1
    if filter.since is not None:
        low = max(0, -(-filter.since // 1_000)) << 80
    if filter.until is not None:
        high = min(high, (max(0, -(-filter.until // 1_000)) << 80) - 1)
    if filter.id is not None:
        digits = filter.id.replace("-", "").lower()
        if not digits or len(digits) > 32 or not _HEX.issuperset(digits):
            return None
        low = max(low, int(digits.ljust(32, "0"), 16))
        high = min(high, int(digits.ljust(32, "f"), 16))
    return IdSpan(_id(low), _id(high)) if low <= high and low < _IDS else None


def previous_id(id: JobId) -> JobId:
    """The next smaller id."""
    return _id(max(0, _number(id) - 1))


def _number(id: str) -> int:
    return int(id.replace("-", ""), 16)


def _id(number: int) -> JobId:
    text = f"{number:032x}"
    return JobId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def has_suffix(filter: JobFilter, id: JobId) -> bool:
    """Whether an id ends as the filter says. No index knows ends: those that a bounded look has found are asked."""
    return filter.id_end is None or id.endswith(filter.id_end)


def preview_length(filter: JobFilter) -> int:
    """How many characters of arguments, progress and result are read."""
    return WHOLE_TEXT if filter.preview is None else max(0, filter.preview)


def is_unfiltered(filter: JobFilter) -> bool:
    """Whether it means all jobs, whatever page is asked for."""
    return msgspec.structs.replace(filter, **_NO_FILTER) == JobFilter()


def is_all_dead_letters(filter: JobFilter) -> bool:
    """Whether it means all dead letters."""
    return msgspec.structs.replace(filter, **_NO_FILTER) == JobFilter(dead_letters=True)


def is_whole_span(filter: JobFilter) -> bool:
    """Whether every job of its span and places is wanted, so that no look is in vain."""
    return is_unfiltered(msgspec.structs.replace(filter, since=None, until=None, id=None, dead_letters=False))


class SearchSql(msgspec.Struct, frozen=True, kw_only=True):
    """The statements of an engine that speaks SQL; their texts are in its search.sql."""

    live_walk: str
    live_chosen: str
    history_walk: str
    history_walk_of_task: str
    history_walk_of_key: str
    history_chosen: str
    dead_walk: str
    dead_walk_of_task: str
    dead_chosen: str
    few_of_key: str
    few_running: str
    few_ready: str
    few_future: str
    few_tried: str
    few_waiting: str
    few_unsucceeded: str
    counts: str
    count_letters: str


class AccessPath(msgspec.Struct, frozen=True):
    """How to look through one place: names of statements."""

    small_set: str | None
    """The ids of a set that holds all that are wanted, and may be small; None: there is no such set."""
    filter: str
    """Of these ids, those that are wanted."""
    scan: str
    """Of so many jobs from here downwards, those that are wanted."""


def access_paths(filter: JobFilter) -> list[AccessPath]:
    """One for each place that may hold such jobs."""
    state, found = filter.state, list[AccessPath]()
    if filter.view is not None and state not in (None, JobState.PENDING):
        return []
    only_live = filter.view is not None or state in LIVE_STATES
    if not filter.dead_letters and (only_live or state is None):
        found.append(AccessPath(_small_live_set(filter), "live_chosen", "live_walk"))
    if not filter.dead_letters and not only_live:
        found.append(AccessPath(_small_ended_set(filter), "history_chosen", _history_scan(filter)))
    if not only_live and state in (None, JobState.DEAD):
        found.append(AccessPath(None, "dead_chosen", "dead_walk" if filter.task is None else "dead_walk_of_task"))
    return found


def _small_live_set(filter: JobFilter) -> str | None:
    if filter.key is not None:
        return "few_of_key"
    if filter.state is JobState.RUNNING or filter.instance is not None:
        # Only what runs has an instance.
        return "few_running"
    by_view = {
        PendingView.READY: "few_ready",
        PendingView.SCHEDULED: "few_future",
        PendingView.RETRYING: "few_tried",
        PendingView.WAITING: "few_waiting",
    }
    if filter.view is not None:
        return by_view[filter.view]
    return None


def _small_ended_set(filter: JobFilter) -> str | None:
    # Who has succeeded has no error.
    is_bad = filter.state in (JobState.CANCELLED, JobState.DEAD) or (filter.error is not None and filter.state is None)
    return "few_unsucceeded" if is_bad and filter.key is None else None


def _history_scan(filter: JobFilter) -> str:
    if filter.key is not None:
        return "history_walk_of_key"
    return "history_walk" if filter.task is None else "history_walk_of_task"


class SmallSet(msgspec.Struct, frozen=True):
    """Question: the ids of this set, at most `limit`. Answer: a list of ids, in any order."""

    statement: str
    limit: int


class Filter(msgspec.Struct, frozen=True):
    """Question: which of these ids are wanted? Answer: a list of (id, word), in any order."""

    statement: str
    ids: list[JobId]
    span: IdSpan


class RangeScan(msgspec.Struct, frozen=True):
    """Question: which of the newest `limit` jobs of a span are wanted? Answer: how many there were, the smallest id of
    them, and a list of (id, word)."""

    statement: str
    span: IdSpan
    limit: int


Question = SmallSet | Filter | RangeScan
Matches = list[tuple[JobId, str]]


class ScanResult(msgspec.Struct, frozen=True):
    """What was found in one place."""

    matches: Matches
    scanned_to: JobId | None
    """The last id that was looked at, where the look ended early."""


Search = Generator[Question, Any, list[ScanResult]]


def page_search(filter: JobFilter) -> Search:
    """The looks for one page."""
    first = filter.limit + 1 if is_whole_span(filter) else max(filter.limit, FIRST_SCAN)
    return _search(filter, filter.limit, (first, MAX_SCANNED), together=True)


def count_search(filter: JobFilter) -> Search:
    """The looks for a count."""
    return _search(msgspec.structs.replace(filter, before=None), 3 * MAX_COUNTED, (MAX_COUNTED,), together=False)


def _search(filter: JobFilter, enough: int, steps: tuple[int, ...], *, together: bool) -> Search:
    within, looks = id_span(filter), list[ScanResult]()
    if within is None or filter.limit <= 0:
        return looks
    for way in access_paths(filter):
        # What lies below the end of an earlier look, or below a page that is full, is for the next page, wherever it is.
        least = max(within.low, _min_id(looks, enough)) if together else within.low
        if least > within.high:
            looks.append(ScanResult([], least))
            continue
        look = yield from _scan(way, filter, IdSpan(least, within.high), enough, steps)
        looks.append(ScanResult(look.matches, look.scanned_to or (least if least > within.low else None)))
    return looks


def _min_id(looks: list[ScanResult], enough: int) -> JobId:
    """The smallest id that can still be on this page."""
    ids = sorted((id for look in looks for id, _ in look.matches), reverse=True)
    full = ids[enough - 1] if len(ids) >= enough else JobId("")
    return max([full, *(look.scanned_to for look in looks if look.scanned_to is not None)])


def _scan(
    path: AccessPath, filter: JobFilter, within: IdSpan, enough: int, steps: tuple[int, ...]
) -> Generator[Question, Any, ScanResult]:
    found: Matches = []
    end: JobId | None = None
    for number, step in enumerate(steps):
        # Of what there is much, a short walk finds enough; of what there is little, the set is small.
        if path.small_set is not None and number == (path.small_set in _OFTEN_LARGE_SETS and len(steps) > 1):
            ids: list[JobId] = yield SmallSet(path.small_set, MAX_SMALL_SET + 1)
            if len(ids) <= MAX_SMALL_SET:
                chosen: Matches = yield Filter(path.filter, ids, within)
                return ScanResult(found + [each for each in chosen if has_suffix(filter, each[0])], None)
        looked, smallest, some = yield RangeScan(path.scan, within, step)
        found += [each for each in some if has_suffix(filter, each[0])]
        if looked < step:
            return ScanResult(found, None)
        end, within = smallest, IdSpan(within.low, previous_id(smallest))
        if len(found) >= enough:
            break
    return ScanResult(found, end)


def merge_page(looks: Iterable[ScanResult], limit: int) -> tuple[list[JobId], JobId | None]:
    """The ids of a page, newest first, and where the next one begins; None: there is none."""
    looks = list(looks)
    # Below the end of a look nobody knows what that place holds.
    ends = [look.scanned_to for look in looks if look.scanned_to is not None]
    end = max(ends, default=None)
    # Where the looks are not of one moment, a job may have been met in two places.
    ids = sorted({id for look in looks for id, _ in look.matches if end is None or id >= end}, reverse=True)
    if len(ids) > limit:
        return ids[:limit], ids[limit - 1]
    return ids, end


def record_statements(filter: JobFilter, looks: list[ScanResult], ids: Iterable[JobId]) -> list[str]:
    """The statements that give the records of these ids: one for each place where any was found."""
    wanted = set(ids)
    return [
        way.filter.replace("chosen", "record")
        for way, look in zip(access_paths(filter), looks, strict=False)
        if any(id in wanted for id, _ in look.matches)
    ]


def count_matches(looks: Iterable[ScanResult]) -> JobCounts:
    """How many were found, by their words; none is counted beyond 10,000."""
    counts: dict[str, int] = {}
    looks = list(looks)
    for word in {id: word for look in looks for id, word in look.matches}.values():
        counts[word] = counts.get(word, 0) + 1
    capped = any(look.scanned_to is not None for look in looks) or any(
        number > MAX_COUNTED for number in counts.values()
    )
    return JobCounts(**{word: min(number, MAX_COUNTED) for word, number in counts.items()}, capped=capped)


T = TypeVar("T")


class CachedCount(Generic[T]):
    """The answer to a question that is asked again and again, such as how much there is of everything.

    As long as there is little to count it is asked for each time. One that counted much and took long is told again for a
    while: forty times as long, at most 10 s, so that those who look never take more than a fortieth of the store's time. Where
    it is the same as the one before, nothing moves, and it is trusted for much longer, at most 60 s: who looks at a store at
    rest costs next to nothing.
    """

    MIN_CACHED_SIZE = 50_000
    _QUICK_S = 0.02
    _WHILE_CHANGING, _WHILE_UNCHANGED = (40, 10.0), (600, 60.0)
    """So many times as long as it took, and so many seconds at most."""

    def __init__(self, clock: Clock, size: Callable[[T], int]) -> None:
        """size: how much was counted."""
        self._clock = clock
        self._size = size
        self._cached: tuple[T, float] | None = None

    @property
    def value(self) -> T | None:
        """The last answer, if it may be told again."""
        return self._cached[0] if self._cached is not None and self._clock.monotonic() < self._cached[1] else None

    def get_sync(self, question: Callable[[], T]) -> T:
        """The answer, asked for if need be. On one thread at a time."""
        if (value := self.value) is None:
            began = self._clock.monotonic()
            value = question()
            self._cache(value, began)
        return value

    async def get(self, question: Callable[[], Awaitable[T]]) -> T:
        """The same on a loop."""
        if (value := self.value) is None:
            began = self._clock.monotonic()
            value = await question()
            self._cache(value, began)
        return value

    def _cache(self, value: T, began: float) -> None:
        now = self._clock.monotonic()
        is_same = self._cached is not None and self._cached[0] == value
        times, longest = self._WHILE_UNCHANGED if is_same else self._WHILE_CHANGING
        is_dear = now - began > self._QUICK_S and self._size(value) >= self.MIN_CACHED_SIZE
        self._cached = (value, now + min((now - began) * times, longest)) if is_dear else None


def total_of_tasks(tasks: list[TaskStats]) -> int:
    return sum(each.pending + each.running + each.succeeded + each.dead + each.cancelled for each in tasks)


DueCounts = dict[str, tuple[int, int]]
"""How many are ready and scheduled, by queue."""


def total_due(due: DueCounts) -> int:
    return sum(ready + scheduled for ready, scheduled in due.values())


def with_due(queue: QueueStats, due: DueCounts) -> QueueStats:
    """The same with these numbers, which may be a little older than the rest, and must not contradict it."""
    ready, scheduled = due.get(queue.name, (0, 0))
    ready = 0 if queue.oldest_due is None else max(1, ready)
    return msgspec.structs.replace(queue, ready=ready, scheduled=scheduled)
