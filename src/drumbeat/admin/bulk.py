"""One act on many jobs: cancel, run now, replay, discard; by id, or by what they have in common; at once or paced.

What an act is about is fixed by its first look: jobs that come meanwhile are not touched. A dry run counts and changes
nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from enum import StrEnum

import msgspec

from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.core.job import CancelAnswer, JobState
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import InvalidArguments
from drumbeat.ids import JobId, is_job_id
from drumbeat.names import short_repr
from drumbeat.store.protocol import Store

from .filters import PAGE, JobQuery, all_ids, read_filter, read_ids

MAX_IDS = 10_000
MAX_REFUSALS = 100
STOP_POLL_INTERVAL = 0.5
"""So often a paced act looks whether it was stopped."""


class Action(StrEnum):
    CANCEL = "cancel"  # pending and running ones
    RUN_NOW = "run_now"  # pending ones
    REPLAY = "replay"  # dead letters
    DISCARD = "discard"  # dead letters


_STATES = {
    Action.CANCEL: (JobState.PENDING, JobState.RUNNING),
    Action.RUN_NOW: (JobState.PENDING,),
    Action.REPLAY: (JobState.DEAD,),
    Action.DISCARD: (JobState.DEAD,),
}


class RefusedJob(msgspec.Struct, frozen=True):
    """A job that the act was not done to."""

    id: JobId
    reason: str


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an act on many jobs."""

    action: Action
    matched: int
    """How many jobs it was about."""
    touched: int
    """How many it was done to; 0 for a dry run."""
    requested: int = 0
    """Of `touched`, those that were running and were asked to stop: each may still end otherwise than cancelled."""
    dry_run: bool
    capped: bool = False
    """The count of a dry run ended at 10,000; there may be more."""
    refused: tuple[RefusedJob, ...] = ()
    """Those that it was not done to, and why; the first 100."""


class BulkProgress:
    """How far an act on many jobs has come, for whoever watches it, and the way to end it early."""

    def __init__(self) -> None:
        self.touched = 0
        self.stopped_by: str | None = None
        """Who does not want it to go on; None: nobody."""

    def stop(self, by: str) -> None:
        """Let it end before its next step: within a second."""
        self.stopped_by = by

    @property
    def is_stopped(self) -> bool:
        return self.stopped_by is not None


class JobSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs an act is about: ids, or filters of which any may match."""

    action: Action
    ids: tuple[JobId, ...] | None = None
    filters: tuple[JobFilter, ...] = ()


def select_jobs(action: str, which: str | Iterable[str] | None, *, all: bool, query: JobQuery) -> JobSelection:
    """Read what an act is about: ids, or something in common, or `all`; nobody acts on everything by leaving something out.

    Raises:
        InvalidArguments: there is no such act, or it is not said which jobs.
    """
    try:
        act = Action(action)
    except ValueError:
        raise InvalidArguments(
            f"there is no act {short_repr(action)} on many jobs: use {', '.join(Action)}", "action"
        ) from None
    has_filter = any(value is not None for value in query.values())
    if [which is not None, has_filter, all].count(True) != 1:
        raise InvalidArguments(
            "say which jobs: their ids, or what they have in common such as task=, or all=True", "ids"
        )
    if which is not None:
        return JobSelection(action=act, ids=_check_ids(which))
    if {"before", "limit"} & query.keys():
        raise InvalidArguments("an act on many jobs takes no before and no limit", "limit")
    return JobSelection(action=act, filters=tuple(_build_filters(act, read_filter(query))))


def _check_ids(which: str | Iterable[str]) -> tuple[JobId, ...]:
    ids = read_ids(which)
    if len(ids) > MAX_IDS:
        raise InvalidArguments(f"at most {MAX_IDS} ids at once; choose them by what they have in common", "ids")
    for id in ids:
        if not is_job_id(id):
            raise InvalidArguments(f"{short_repr(id)} is no id of a job", "ids")
    return tuple(ids)


def _build_filters(action: Action, filter: JobFilter) -> Iterable[JobFilter]:
    # Running ones last: a pending job that is claimed between the two looks is met as a running one.
    for state in _STATES[action]:
        if filter.state in (None, state) and (filter.view is None or state is JobState.PENDING):
            yield msgspec.structs.replace(filter, state=state, dead_letters=state is JobState.DEAD)


def read_rate(rate: object) -> float | None:
    """So many jobs in a second; None: as fast as it goes."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.001 <= rate <= 1_000_000:
        raise InvalidArguments(f"rate must be a number of jobs in a second, such as 10, not {short_repr(rate)}", "rate")
    return float(rate)


async def count_matching(client: Client, selection: JobSelection) -> BulkResult:
    """A dry run."""
    if selection.ids is not None:
        return BulkResult(action=selection.action, matched=len(selection.ids), touched=0, dry_run=True)
    store = await client.store()
    matched, capped = 0, False
    for filter in selection.filters:
        counts = await store.inspect.count_jobs(filter)
        matched += counts.total
        capped = capped or counts.capped
    return BulkResult(action=selection.action, matched=matched, touched=0, dry_run=True, capped=capped)


async def apply_to_all(
    client: Client, selection: JobSelection, clock: Clock, rate: float | None, progress: BulkProgress | None = None
) -> BulkResult:
    """Do it, page by page; `rate`: to at most so many in a second. Stopped by `progress`, it tells of what was done so far."""
    store = await client.store()
    progress = BulkProgress() if progress is None else progress
    matched = requested = 0
    refused: list[RefusedJob] = []
    async for ids in pace_pages(_select_pages(client, selection), clock, rate, progress):
        number, requested_now, refused_now = await _apply_to_page(store, selection.action, ids)
        matched += len(ids)
        progress.touched += number
        requested += requested_now
        refused += refused_now[: MAX_REFUSALS - len(refused)]
    return BulkResult(
        action=selection.action,
        matched=matched,
        touched=progress.touched,
        requested=requested,
        dry_run=False,
        refused=tuple(refused[:MAX_REFUSALS]),
    )


async def _select_pages(client: Client, selection: JobSelection) -> AsyncIterator[Sequence[JobId]]:
    if selection.ids is not None:
        yield selection.ids
        return
    for number, filter in enumerate(selection.filters):
        pages = all_ids(client, filter, check_names=number == 0)
        if selection.action is Action.REPLAY:
            # The oldest first, as they came; so all of them have to be known before the first is done.
            yield [id async for page in pages for id in page][::-1]
        else:
            async for page in pages:
                yield page


async def pace_pages(
    pages: AsyncIterator[Sequence[JobId]], clock: Clock, rate: float | None, progress: BulkProgress | None = None
) -> AsyncIterator[Sequence[JobId]]:
    """The same ids in steps, at most so many in a second, until somebody stops it."""
    progress = BulkProgress() if progress is None else progress
    # About ten steps a second: even enough for whoever is behind the jobs, and few transactions.
    step = PAGE if rate is None else max(1, min(PAGE, round(rate / 10)))
    first = True
    async for page in pages:
        for start in range(0, len(page), step):
            if rate is not None and not first:
                await _sleep_unless_stopped(clock, step / rate, progress)
            first = False
            if progress.is_stopped:
                return
            yield page[start : start + step]


async def _sleep_unless_stopped(clock: Clock, seconds: float, progress: BulkProgress) -> None:
    """At a slow pace a pause may be minutes long; whoever stops the act does not wait for it."""
    while seconds > 0 and not progress.is_stopped:
        nap = min(seconds, STOP_POLL_INTERVAL)
        await clock.sleep(nap)
        seconds -= nap


async def _apply_to_page(store: Store, action: Action, ids: Sequence[JobId]) -> tuple[int, int, list[RefusedJob]]:
    """How many it was done to, how many of these were only asked to stop, and who was left alone."""
    match action:
        case Action.CANCEL:
            answers = await store.jobs.cancel(ids)
            cancelled = list(zip(ids, answers, strict=True))
            well = (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED)
            refused = [RefusedJob(id, _cancel_refusal(answer)) for id, answer in cancelled if answer not in well]
            return len(ids) - len(refused), answers.count(CancelAnswer.REQUESTED), refused
        case Action.REPLAY:
            replayed = await store.jobs.replay(ids)
            refused = [RefusedJob(each.id, _replay_refusal(each.conflict)) for each in replayed if not each.replayed]
            return len(ids) - len(refused), 0, refused
        case Action.RUN_NOW:
            return await store.jobs.run_now(ids), 0, []
        case Action.DISCARD:
            return await store.jobs.discard(ids), 0, []


def _cancel_refusal(answer: CancelAnswer) -> str:
    return "there is no such job" if answer is CancelAnswer.UNKNOWN else f"it had ended: {answer}"


def _replay_refusal(conflict: JobId | None) -> str:
    return "it is no dead letter" if conflict is None else f"job {conflict} is live with the same key"
