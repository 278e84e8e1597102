"""Bulk actions: cancel, run now, replay or discard many jobs, by id or by filter, at once or paced.

The only place that calls the store's verbs on many jobs; `app.dead`, `app.jobs`, the dashboard and the command line go through
here. The jobs are fixed by the first query: jobs that come later are not touched. A dry run counts and changes nothing.

    select_jobs > list_pages > apply_pages (one page, one call of the store) > apply_to_all
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.core.field_doc import doc
from drumbeat.core.job import CancelAnswer, Job, JobState, ReplayResult
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import InvalidArguments
from drumbeat.ids import JobId, is_job_id
from drumbeat.names import short_repr
from drumbeat.store.protocol import Store

from .filters import PAGE, JobCriteria, JobQuery, page_through, read_filter

MAX_IDS = 10_000
MAX_REFUSALS = 100
STOP_POLL_INTERVAL = 0.5
"""Seconds between two checks of a paced action whether it was stopped."""


class Action(StrEnum):
    CANCEL = "cancel"  # pending and running jobs
    RUN_NOW = "run_now"  # pending jobs
    REPLAY = "replay"  # dead letters
    DISCARD = "discard"  # dead letters


_STATES = {
    Action.CANCEL: (JobState.PENDING, JobState.RUNNING),
    Action.RUN_NOW: (JobState.PENDING,),
    Action.REPLAY: (JobState.DEAD,),
    Action.DISCARD: (JobState.DEAD,),
}


class RefusedJob(msgspec.Struct, frozen=True):
    """A job that the action did not change."""

    id: JobId
    reason: str


class PageResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one page of a bulk action did."""

    ids: Sequence[JobId]
    touched: int
    requested: int = 0
    refused: Sequence[RefusedJob] = ()
    cancelled: Sequence[CancelAnswer] = ()
    """Of cancel: one answer for each id."""
    replayed: Sequence[ReplayResult] = ()
    """Of replay: one answer for each id."""


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a bulk action did."""

    action: Action
    matched: Annotated[int, doc("How many jobs were selected.")]
    touched: Annotated[int, doc("How many were changed; 0 for a dry run.")]
    requested: Annotated[
        int,
        doc(
            "Of `touched`, those that were running and were asked to stop: each may still end otherwise than cancelled."
        ),
    ] = 0
    dry_run: bool
    capped: Annotated[bool, doc("The count of a dry run ended at 10,000; there may be more.")] = False
    refused: Annotated[
        tuple[RefusedJob, ...],
        doc("Jobs that were not changed, each with the reason; the first 100."),
    ] = ()


class BulkProgress:
    """How far a bulk action has come, for another task that watches or stops it. `app.audit.progress(act)` gives one that
    everybody sees and can stop, in whatever process."""

    def __init__(self, matched: int | None = None) -> None:
        self.touched = 0
        self.matched = matched
        """How many jobs there are; None: not known."""
        self.stopped_by: str | None = None
        """Who stopped it; None: nobody."""

    def stop(self, by: str) -> None:
        """End it before its next step: within a second."""
        self.stopped_by = by

    @property
    def is_stopped(self) -> bool:
        return self.stopped_by is not None

    async def report(self) -> None:
        """Called between two steps, and twice a second during a pause."""


class JobSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs an action is about: ids, or filters of which any may match."""

    action: Action
    ids: tuple[JobId, ...] | None = None
    filters: tuple[JobFilter, ...] = ()


def select_jobs(
    action: str, which: str | Iterable[str] | None, query: JobQuery | JobCriteria, *, all: bool = False
) -> JobSelection:
    """Read which jobs an action is about: ids, a filter, or `all`. Leaving everything out selects nothing.

    Raises:
        InvalidArguments: there is no such action, or not exactly one of the three is given.
    """
    try:
        act = Action(action)
    except ValueError:
        raise InvalidArguments(
            f"there is no action {short_repr(action)} on many jobs: use {', '.join(Action)}", "action"
        ) from None
    has_filter = any(value is not None for value in query.values())
    if [which is not None, has_filter, all].count(True) != 1:
        raise InvalidArguments("say which jobs: their ids, or a filter such as task=; in bulk also all=True", "ids")
    if which is not None:
        # One id or several, each once, in order. Whether such jobs exist is for the store to say.
        ids = dict.fromkeys(JobId(id) for id in ([which] if isinstance(which, str) else which))
        return JobSelection(action=act, ids=tuple(ids))
    if {"before", "limit"} & query.keys():
        raise InvalidArguments("an action on many jobs takes no before and no limit", "limit")
    return JobSelection(action=act, filters=tuple(_build_filters(act, read_filter(query))))


def check_ids(selection: JobSelection) -> JobSelection:
    """Refuse a list that is too long for one request, or that contains something other than job ids."""
    ids = selection.ids or ()
    if len(ids) > MAX_IDS:
        raise InvalidArguments(f"at most {MAX_IDS} ids at once; use a filter instead", "ids")
    for id in ids:
        if not is_job_id(id):
            raise InvalidArguments(f"{short_repr(id)} is no id of a job", "ids")
    return selection


def _build_filters(action: Action, filter: JobFilter) -> Iterable[JobFilter]:
    # Running jobs last: a pending job that is claimed between the two queries is found as a running one.
    for state in _STATES[action]:
        if filter.state in (None, state) and (filter.view is None or state is JobState.PENDING):
            yield msgspec.structs.replace(filter, state=state, dead_letters=state is JobState.DEAD)


def read_rate(rate: object) -> float | None:
    """Jobs a second; None: as fast as possible."""
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
    """Run the whole action. Stopped by `progress`, the result covers what was done until then."""
    matched = touched = requested = 0
    refused: list[RefusedJob] = []
    async for page in apply_pages(client, selection, clock, rate, progress):
        matched += len(page.ids)
        touched += page.touched
        requested += page.requested
        refused += page.refused[: MAX_REFUSALS - len(refused)]
    return BulkResult(
        action=selection.action,
        matched=matched,
        touched=touched,
        requested=requested,
        dry_run=False,
        refused=tuple(refused),
    )


async def apply_pages(
    client: Client,
    selection: JobSelection,
    clock: Clock,
    rate: float | None = None,
    progress: BulkProgress | None = None,
) -> AsyncIterator[PageResult]:
    """Run the action page by page, at most `rate` jobs a second."""
    store = await client.store()
    progress = BulkProgress() if progress is None else progress
    async for ids in _pace_pages(_select_ids(client, selection), clock, rate, progress):
        page = await _apply_to_page(store, selection.action, ids)
        progress.touched += page.touched
        await progress.report()
        yield page


async def list_pages(client: Client, selection: JobSelection) -> AsyncIterator[Sequence[Job]]:
    """The jobs that the filters of a selection match, newest first, without their arguments."""
    for number, filter in enumerate(selection.filters):
        async for page in page_through(client, filter, check_names=number == 0):
            yield page


async def _select_ids(client: Client, selection: JobSelection) -> AsyncIterator[Sequence[JobId]]:
    pages = list_pages(client, selection)
    if selection.ids is not None:
        yield selection.ids
    elif selection.action in (Action.REPLAY, Action.DISCARD):
        # Oldest first, as they came; so all ids must be known before the first is changed.
        yield [job.id async for page in pages for job in page][::-1]
    else:
        async for page in pages:
            yield [job.id for job in page]


async def _pace_pages(
    pages: AsyncIterator[Sequence[JobId]], clock: Clock, rate: float | None, progress: BulkProgress
) -> AsyncIterator[Sequence[JobId]]:
    """The same ids in steps, at most `rate` a second, until `progress` is stopped."""
    # About ten steps a second: even enough for what the jobs call, and few transactions.
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
    """At a slow rate a pause may last minutes; a stop takes effect earlier."""
    while seconds > 0 and not progress.is_stopped:
        await progress.report()
        nap = min(seconds, STOP_POLL_INTERVAL)
        await clock.sleep(nap)
        seconds -= nap


async def _apply_to_page(store: Store, action: Action, ids: Sequence[JobId]) -> PageResult:
    refused: list[RefusedJob] = []
    match action:
        case Action.CANCEL:
            answers = await store.jobs.cancel(ids)
            for id, answer in zip(ids, answers, strict=True):
                if answer is CancelAnswer.UNKNOWN:
                    refused.append(RefusedJob(id, "there is no such job"))
                elif answer not in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED):
                    refused.append(RefusedJob(id, f"it had ended: {answer}"))
            requested = answers.count(CancelAnswer.REQUESTED)
            touched = len(ids) - len(refused)
            return PageResult(ids=ids, touched=touched, requested=requested, refused=refused, cancelled=answers)
        case Action.REPLAY:
            replayed = await store.jobs.replay(ids)
            refused = [RefusedJob(each.id, replay_refusal(each.conflict)) for each in replayed if not each.replayed]
            return PageResult(ids=ids, touched=len(ids) - len(refused), refused=refused, replayed=replayed)
        case Action.RUN_NOW:
            return PageResult(ids=ids, touched=await store.jobs.run_now(ids))
        case Action.DISCARD:
            return PageResult(ids=ids, touched=await store.jobs.discard(ids))


def replay_refusal(conflict: JobId | None) -> str:
    return "it is no dead letter" if conflict is None else f"job {conflict} is live with the same key"
