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
from drumbeat.ids import JobId, is_job_id
from drumbeat.model.job import LIVE, Job, JobCounts, JobFilter, JobPage, JobState, QueueStats, TaskStats, View

FEW = 2_000
"""A set of so many is looked at as a whole; in a larger one, a walk soon finds enough."""
FIRST_LOOK = 500
LOOKED_AT = 2_500
"""Jobs of one place that a page looks at, at most: about 10 ms. (What ended early in one place is not looked at in another.)"""
COUNTED = 10_000
"""Jobs of one place that a count with a filter looks at, at most."""

WHOLE = 2**31 - 1
"""As the length of a preview: all of it."""
_OFTEN_LARGE = frozenset({"few_ready", "few_future", "few_unsucceeded"})
_IDS = 1 << 128
_HEX = frozenset("0123456789abcdef")
_NO_FILTER = {"before": None, "limit": 50, "preview": None}


class Span(msgspec.Struct, frozen=True):
    """Ids from `low` to `high`, both included."""

    low: JobId
    high: JobId


def span(filter: JobFilter) -> Span | None:
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
    return Span(_id(low), _id(high)) if low <= high and low < _IDS else None


def below(id: JobId) -> JobId:
    """The next smaller id."""
    return _id(max(0, _number(id) - 1))


def _number(id: str) -> int:
    return int(id.replace("-", ""), 16)


def _id(number: int) -> JobId:
    text = f"{number:032x}"
    return JobId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def ends_so(filter: JobFilter, id: JobId) -> bool:
    """Whether an id ends as the filter says. No index knows ends: those that a bounded look has found are asked."""
    return filter.id_end is None or id.endswith(filter.id_end)


def preview(filter: JobFilter) -> int:
    """How many characters of arguments, progress and result are read."""
    return WHOLE if filter.preview is None else max(0, filter.preview)


def is_open(filter: JobFilter) -> bool:
    """Whether it means all jobs, whatever page is asked for."""
    return msgspec.structs.replace(filter, **_NO_FILTER) == JobFilter()


def is_letters(filter: JobFilter) -> bool:
    """Whether it means all dead letters."""
    return msgspec.structs.replace(filter, **_NO_FILTER) == JobFilter(letters=True)


def is_bare(filter: JobFilter) -> bool:
    """Whether every job of its span and places is wanted, so that no look is in vain."""
    return is_open(msgspec.structs.replace(filter, since=None, until=None, id=None, letters=False))


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


class Way(msgspec.Struct, frozen=True):
    """How to look through one place: names of statements."""

    few: str | None
    """The ids of a set that holds all that are wanted, and may be small; None: there is no such set."""
    chosen: str
    """Of these ids, those that are wanted."""
    walk: str
    """Of so many jobs from here downwards, those that are wanted."""


def ways(filter: JobFilter) -> list[Way]:
    """One for each place that may hold such jobs."""
    state, found = filter.state, list[Way]()
    if filter.view is not None and state not in (None, JobState.PENDING):
        return []
    only_live = filter.view is not None or state in LIVE
    if not filter.letters and (only_live or state is None):
        found.append(Way(_few_live(filter), "live_chosen", "live_walk"))
    if not filter.letters and not only_live:
        found.append(Way(_few_ended(filter), "history_chosen", _walk_history(filter)))
    if not only_live and state in (None, JobState.DEAD):
        found.append(Way(None, "dead_chosen", "dead_walk" if filter.task is None else "dead_walk_of_task"))
    return found


def _few_live(filter: JobFilter) -> str | None:
    if filter.key is not None:
        return "few_of_key"
    if filter.state is JobState.RUNNING or filter.instance is not None:
        # Only what runs has an instance.
        return "few_running"
    by_view = {
        View.READY: "few_ready",
        View.SCHEDULED: "few_future",
        View.RETRYING: "few_tried",
        View.WAITING: "few_waiting",
    }
    if filter.view is not None:
        return by_view[filter.view]
    return None


def _few_ended(filter: JobFilter) -> str | None:
    # Who has succeeded has no error.
    is_bad = filter.state in (JobState.CANCELLED, JobState.DEAD) or (filter.error is not None and filter.state is None)
    return "few_unsucceeded" if is_bad and filter.key is None else None


def _walk_history(filter: JobFilter) -> str:
    if filter.key is not None:
        return "history_walk_of_key"
    return "history_walk" if filter.task is None else "history_walk_of_task"


class Few(msgspec.Struct, frozen=True):
    """Question: the ids of this set, at most `limit`. Answer: a list of ids, in any order."""

    statement: str
    limit: int


class Chosen(msgspec.Struct, frozen=True):
    """Question: which of these ids are wanted? Answer: a list of (id, word), in any order."""

    statement: str
    ids: list[JobId]
    span: Span


class Walked(msgspec.Struct, frozen=True):
    """Question: which of the newest `limit` jobs of a span are wanted? Answer: how many there were, the smallest id of
    them, and a list of (id, word)."""

    statement: str
    span: Span
    limit: int


Question = Few | Chosen | Walked
Found = list[tuple[JobId, str]]


class Look(msgspec.Struct, frozen=True):
    """What was found in one place."""

    found: Found
    end: JobId | None
    """The last id that was looked at, where the look ended early."""


Search = Generator[Question, Any, list[Look]]


def page_search(filter: JobFilter) -> Search:
    """The looks for one page."""
    first = filter.limit + 1 if is_bare(filter) else max(filter.limit, FIRST_LOOK)
    return _search(filter, filter.limit, (first, LOOKED_AT), together=True)


def count_search(filter: JobFilter) -> Search:
    """The looks for a count."""
    return _search(msgspec.structs.replace(filter, before=None), 3 * COUNTED, (COUNTED,), together=False)


def _search(filter: JobFilter, enough: int, steps: tuple[int, ...], *, together: bool) -> Search:
    within, looks = span(filter), list[Look]()
    if within is None or filter.limit <= 0:
        return looks
    for way in ways(filter):
        # What lies below the end of an earlier look, or below a page that is full, is for the next page, wherever it is.
        least = max(within.low, _least(looks, enough)) if together else within.low
        if least > within.high:
            looks.append(Look([], least))
            continue
        look = yield from _look(way, filter, Span(least, within.high), enough, steps)
        looks.append(Look(look.found, look.end or (least if least > within.low else None)))
    return looks


def _least(looks: list[Look], enough: int) -> JobId:
    """The smallest id that can still be on this page."""
    ids = sorted((id for look in looks for id, _ in look.found), reverse=True)
    full = ids[enough - 1] if len(ids) >= enough else JobId("")
    return max([full, *(look.end for look in looks if look.end is not None)])


def _look(
    way: Way, filter: JobFilter, within: Span, enough: int, steps: tuple[int, ...]
) -> Generator[Question, Any, Look]:
    found: Found = []
    end: JobId | None = None
    for number, step in enumerate(steps):
        # Of what there is much, a short walk finds enough; of what there is little, the set is small.
        if way.few is not None and number == (way.few in _OFTEN_LARGE and len(steps) > 1):
            ids: list[JobId] = yield Few(way.few, FEW + 1)
            if len(ids) <= FEW:
                chosen: Found = yield Chosen(way.chosen, ids, within)
                return Look(found + [each for each in chosen if ends_so(filter, each[0])], None)
        looked, smallest, some = yield Walked(way.walk, within, step)
        found += [each for each in some if ends_so(filter, each[0])]
        if looked < step:
            return Look(found, None)
        end, within = smallest, Span(within.low, below(smallest))
        if len(found) >= enough:
            break
    return Look(found, end)


def newest(looks: Iterable[Look], limit: int) -> tuple[list[JobId], JobId | None]:
    """The ids of a page, newest first, and where the next one begins; None: there is none."""
    looks = list(looks)
    # Below the end of a look nobody knows what that place holds.
    ends = [look.end for look in looks if look.end is not None]
    end = max(ends, default=None)
    # Where the looks are not of one moment, a job may have been met in two places.
    ids = sorted({id for look in looks for id, _ in look.found if end is None or id >= end}, reverse=True)
    if len(ids) > limit:
        return ids[:limit], ids[limit - 1]
    return ids, end


def records(filter: JobFilter, looks: list[Look], ids: Iterable[JobId]) -> list[str]:
    """The statements that give the records of these ids: one for each place where any was found."""
    wanted = set(ids)
    return [
        way.chosen.replace("chosen", "record")
        for way, look in zip(ways(filter), looks, strict=False)
        if any(id in wanted for id, _ in look.found)
    ]


def tally(looks: Iterable[Look]) -> JobCounts:
    """How many were found, by their words; none is counted beyond 10,000."""
    counts: dict[str, int] = {}
    looks = list(looks)
    for word in {id: word for look in looks for id, word in look.found}.values():
        counts[word] = counts.get(word, 0) + 1
    capped = any(look.end is not None for look in looks) or any(number > COUNTED for number in counts.values())
    return JobCounts(**{word: min(number, COUNTED) for word, number in counts.items()}, capped=capped)


async def whole(page: Callable[[JobFilter], Awaitable[JobPage]], filter: JobFilter) -> list[Job]:
    """Up to `limit` jobs, however many pages it takes."""
    found: list[Job] = []
    while filter.limit > 0:
        part = await page(filter)
        found += part.items
        if part.next is None:
            break
        filter = msgspec.structs.replace(filter, before=part.next, limit=filter.limit - len(part.items))
    return found


T = TypeVar("T")


class Recent(Generic[T]):
    """The answer to a question that is asked again and again, such as how much there is of everything.

    As long as there is little to count it is asked for each time. One that counted much and took long is told again for a
    while: forty times as long, at most 10 s, so that those who look never take more than a fortieth of the store's time. Where
    it is the same as the one before, nothing moves, and it is trusted for much longer, at most 60 s: who looks at a store at
    rest costs next to nothing.
    """

    MUCH = 50_000
    _QUICK_S = 0.02
    _MOVING, _AT_REST = (40, 10.0), (600, 60.0)
    """So many times as long as it took, and so many seconds at most."""

    def __init__(self, clock: Clock, size: Callable[[T], int]) -> None:
        """size: how much was counted."""
        self._clock = clock
        self._size = size
        self._known: tuple[T, float] | None = None

    @property
    def value(self) -> T | None:
        """The last answer, if it may be told again."""
        return self._known[0] if self._known is not None and self._clock.monotonic() < self._known[1] else None

    def ask(self, question: Callable[[], T]) -> T:
        """The answer, asked for if need be. On one thread at a time."""
        if (value := self.value) is None:
            began = self._clock.monotonic()
            value = question()
            self._keep(value, began)
        return value

    async def get(self, question: Callable[[], Awaitable[T]]) -> T:
        """The same on a loop."""
        if (value := self.value) is None:
            began = self._clock.monotonic()
            value = await question()
            self._keep(value, began)
        return value

    def _keep(self, value: T, began: float) -> None:
        now = self._clock.monotonic()
        is_same = self._known is not None and self._known[0] == value
        times, longest = self._AT_REST if is_same else self._MOVING
        is_dear = now - began > self._QUICK_S and self._size(value) >= self.MUCH
        self._known = (value, now + min((now - began) * times, longest)) if is_dear else None


def total_of_tasks(tasks: list[TaskStats]) -> int:
    return sum(each.pending + each.running + each.succeeded + each.dead + each.cancelled for each in tasks)


Due = dict[str, tuple[int, int]]
"""How many are ready and scheduled, by queue."""


def total_due(due: Due) -> int:
    return sum(ready + scheduled for ready, scheduled in due.values())


def with_due(queue: QueueStats, due: Due) -> QueueStats:
    """The same with these numbers, which may be a little older than the rest, and must not contradict it."""
    ready, scheduled = due.get(queue.name, (0, 0))
    ready = 0 if queue.oldest_due is None else max(1, ready)
    return msgspec.structs.replace(queue, ready=ready, scheduled=scheduled)
