"""How a search for jobs is planned, apart from any engine: which statements run, and how their results are merged.

People search while the store works, so every search is bounded. A job is in one of three places, each ordered by id:

    live       pending and running        history    ended        dead      the dead letters

In each place that may hold matching jobs, a search either scans ids downwards, up to a limit (`RangeScan`), or reads a set that
contains all matches (all running jobs, all jobs of a key, all ready jobs ...) as a whole if it is small (`SmallSet`, then
`Filter`). Where a scan stopped early nothing below is known, and the page says where to continue. All conditions on ids
(before, since, until, a prefix) become one span of ids.

`Search` yields questions and receives answers; it does no I/O, so that an engine may drive it from a thread or from a loop.
"""

from collections import Counter
from collections.abc import Generator, Iterable
from typing import Any

import msgspec

from drumbeat.core.job import LIVE_STATES, JobState, PendingView
from drumbeat.core.job_query import JobCounts, JobFilter
from drumbeat.ids import JobId, is_job_id

MAX_SMALL_SET = 2_000
"""A set of at most this size is read as a whole; in a larger one a scan soon finds enough."""
FIRST_SCAN = 500
MAX_SCANNED = 2_500
"""Jobs of one place that a page scans at most: about 10 ms. (What lies below an early end in one place is not
scanned in others.)"""
MAX_COUNTED = 10_000
"""Jobs of one place that a filtered count scans at most."""

WHOLE_TEXT = 2**31 - 1
"""Length of a preview that is the whole text."""
_OFTEN_LARGE_SETS = frozenset({"small_ready", "small_future", "small_unsucceeded"})
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
    """Whether an id ends as the filter says. No index serves suffixes: the results of a bounded scan are checked."""
    return filter.id_end is None or id.endswith(filter.id_end)


def preview_length(filter: JobFilter) -> int:
    """Number of characters of arguments, progress and result to read."""
    return WHOLE_TEXT if filter.preview is None else max(0, filter.preview)


def is_unfiltered(filter: JobFilter) -> bool:
    """Whether it matches all jobs, on whatever page."""
    return msgspec.structs.replace(filter, **_NO_FILTER) == JobFilter()


def is_all_dead_letters(filter: JobFilter) -> bool:
    """Whether it matches all dead letters, and nothing else."""
    return msgspec.structs.replace(filter, **_NO_FILTER) == JobFilter(dead_letters=True)


def is_whole_span(filter: JobFilter) -> bool:
    """Whether it matches every job of its span and places, so that a scan finds only matches."""
    return is_unfiltered(msgspec.structs.replace(filter, since=None, until=None, id=None, dead_letters=False))


class AccessPath(msgspec.Struct, frozen=True):
    """How to search one place: names of statements."""

    place: str
    """live, history or dead."""
    small_set: str | None
    """Ids of a set that contains all matches and may be small; None: there is no such set."""
    scan: str
    """The matches among a limited number of jobs, from an id downwards."""

    @property
    def filter(self) -> str:
        """The matches among given ids."""
        return f"{self.place}_filter"

    @property
    def record(self) -> str:
        """The records of given ids (in inspect.sql)."""
        return f"{self.place}_record"


def access_paths(filter: JobFilter) -> list[AccessPath]:
    """One for each place that may hold matching jobs."""
    state, found, linked = filter.state, list[AccessPath](), _linked_by(filter)
    if filter.view is not None and state not in (None, JobState.PENDING):
        return []
    only_live = filter.live or filter.view is not None or state in LIVE_STATES
    if not filter.dead_letters and (only_live or state is None):
        scan = f"live_scan_of_{linked}" if linked else "live_scan"
        found.append(AccessPath("live", None if linked else _small_live_set(filter), scan))
    if not filter.dead_letters and not only_live:
        found.append(AccessPath("history", None if linked else _small_ended_set(filter), _history_scan(filter)))
    if not only_live and state in (None, JobState.DEAD):
        found.append(AccessPath("dead", None, _dead_scan(filter)))
    return found


def _linked_by(filter: JobFilter) -> str | None:
    """The column with an index of its own by which jobs belong together."""
    if filter.parent is not None:
        return "parent"
    return "workflow" if filter.workflow is not None else None


def _small_live_set(filter: JobFilter) -> str | None:
    if filter.key is not None:
        return "small_of_key"
    if filter.state is JobState.RUNNING or filter.instance is not None:
        # Only running jobs have an instance.
        return "small_running"
    by_view = {
        PendingView.READY: "small_ready",
        PendingView.SCHEDULED: "small_future",
        PendingView.RETRYING: "small_retrying",
        PendingView.WAITING: "small_waiting",
    }
    if filter.view is not None:
        return by_view[filter.view]
    return None


def _small_ended_set(filter: JobFilter) -> str | None:
    # Succeeded jobs have no error.
    is_unsucceeded = filter.state in (JobState.CANCELLED, JobState.EXPIRED, JobState.DEAD) or (
        filter.error is not None and filter.state is None
    )
    return "small_unsucceeded" if is_unsucceeded and filter.key is None else None


def _dead_scan(filter: JobFilter) -> str:
    if (linked := _linked_by(filter)) is not None:
        return f"dead_scan_of_{linked}"
    return "dead_scan" if filter.task is None else "dead_scan_of_task"


def _history_scan(filter: JobFilter) -> str:
    if (linked := _linked_by(filter)) is not None:
        return f"history_scan_of_{linked}"
    if filter.key is not None:
        return "history_scan_of_key"
    return "history_scan" if filter.task is None else "history_scan_of_task"


class SmallSet(msgspec.Struct, frozen=True):
    """Question: the ids of this set, at most `limit`. Answer: a list of ids in any order."""

    statement: str
    limit: int


class Filter(msgspec.Struct, frozen=True):
    """Question: which of these ids match? Answer: a list of (id, view) in any order."""

    statement: str
    ids: list[JobId]
    span: IdSpan


class RangeScan(msgspec.Struct, frozen=True):
    """Question: which of the newest `limit` jobs of a span match? Answer: the number of jobs scanned, the smallest of their
    ids, and a list of (id, view)."""

    statement: str
    span: IdSpan
    limit: int


Question = SmallSet | Filter | RangeScan
Matches = list[tuple[JobId, str]]


class ScanResult(msgspec.Struct, frozen=True):
    """The matches of one place."""

    matches: Matches
    scanned_to: JobId | None
    """The last id that was scanned, if the scan stopped early."""


Search = Generator[Question, Any, list[ScanResult]]


def advance(search: Search, answer: Any = None) -> Question | list[ScanResult]:
    """The next question of a search, given the answer to the one before; its results at the end."""
    try:
        return search.send(answer)
    except StopIteration as end:
        results: list[ScanResult] = end.value
        return results


def page_search(filter: JobFilter) -> Search:
    """The search for one page."""
    first = filter.limit + 1 if is_whole_span(filter) else max(filter.limit, FIRST_SCAN)
    return _search(filter, filter.limit, (first, MAX_SCANNED), together=True)


def count_search(filter: JobFilter) -> Search:
    """The search for a count."""
    return _search(msgspec.structs.replace(filter, before=None), 3 * MAX_COUNTED, (MAX_COUNTED,), together=False)


def _search(filter: JobFilter, enough: int, steps: tuple[int, ...], *, together: bool) -> Search:
    within, results = id_span(filter), list[ScanResult]()
    if within is None or filter.limit <= 0:
        return results
    for path in access_paths(filter):
        # What lies below the end of an earlier scan, or below a full page, is for the next page, in whatever place it is.
        lowest = max(within.low, _min_id(results, enough)) if together else within.low
        if lowest > within.high:
            results.append(ScanResult([], lowest))
            continue
        found = yield from _scan(path, filter, IdSpan(lowest, within.high), enough, steps)
        results.append(ScanResult(found.matches, found.scanned_to or (lowest if lowest > within.low else None)))
    return results


def _min_id(results: list[ScanResult], enough: int) -> JobId:
    """The smallest id that can still be on this page."""
    ids = sorted((id for result in results for id, _ in result.matches), reverse=True)
    full = ids[enough - 1] if len(ids) >= enough else JobId("")
    return max([full, *(result.scanned_to for result in results if result.scanned_to is not None)])


def _scan(
    path: AccessPath, filter: JobFilter, within: IdSpan, enough: int, steps: tuple[int, ...]
) -> Generator[Question, Any, ScanResult]:
    found: Matches = []
    end: JobId | None = None
    for number, step in enumerate(steps):
        # Of a large set a short scan finds enough; a small set is read as a whole.
        if path.small_set is not None and number == (path.small_set in _OFTEN_LARGE_SETS and len(steps) > 1):
            ids: list[JobId] = yield SmallSet(path.small_set, MAX_SMALL_SET + 1)
            if len(ids) <= MAX_SMALL_SET:
                matches: Matches = yield Filter(path.filter, ids, within)
                return ScanResult(found + [each for each in matches if has_suffix(filter, each[0])], None)
        scanned, smallest, matches = yield RangeScan(path.scan, within, step)
        found += [each for each in matches if has_suffix(filter, each[0])]
        if scanned < step:
            return ScanResult(found, None)
        end, within = smallest, IdSpan(within.low, previous_id(smallest))
        if len(found) >= enough:
            break
    return ScanResult(found, end)


def merge_page(results: Iterable[ScanResult], limit: int) -> tuple[list[JobId], JobId | None]:
    """The ids of a page, newest first, and where the next one begins; None: there is none."""
    results = list(results)
    # Below the end of a scan the content of that place is unknown.
    end = max((result.scanned_to for result in results if result.scanned_to is not None), default=None)
    # Scans at different times may have met a job in two places.
    ids = sorted({id for result in results for id, _ in result.matches if end is None or id >= end}, reverse=True)
    if len(ids) > limit:
        return ids[:limit], ids[limit - 1]
    return ids, end


def record_statements(filter: JobFilter, results: list[ScanResult], ids: Iterable[JobId]) -> list[str]:
    """Names of the statements that read the records of these ids: one for each place where any was found."""
    wanted = set(ids)
    return [
        path.record
        for path, result in zip(access_paths(filter), results, strict=False)
        if any(id in wanted for id, _ in result.matches)
    ]


def count_matches(results: Iterable[ScanResult]) -> JobCounts:
    """The number of matches by view; each is at most MAX_COUNTED."""
    results = list(results)
    counts = Counter({id: view for result in results for id, view in result.matches}.values())
    capped = any(result.scanned_to is not None for result in results) or any(
        count > MAX_COUNTED for count in counts.values()
    )
    return JobCounts(**{view: min(count, MAX_COUNTED) for view, count in counts.items()}, capped=capped)
