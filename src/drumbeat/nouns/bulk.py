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
from drumbeat.errors import InvalidArguments
from drumbeat.ids import JobId, is_job_id
from drumbeat.model.job import CancelAnswer, JobFilter, JobState
from drumbeat.names import shown
from drumbeat.store.protocol import Store

from .wanted import PAGE, Wanted, all_ids, read_filter, read_ids

MOST_IDS = 10_000
MOST_TOLD = 100
NAP_S = 0.5
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


class NotTouched(msgspec.Struct, frozen=True):
    """A job that the act was not done to."""

    id: JobId
    why: str


class BulkAnswer(msgspec.Struct, frozen=True, kw_only=True):
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
    refused: tuple[NotTouched, ...] = ()
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


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs an act is about: ids, or filters of which any may match."""

    action: Action
    ids: tuple[JobId, ...] | None = None
    filters: tuple[JobFilter, ...] = ()


def choose(action: str, which: str | Iterable[str] | None, *, all: bool, wanted: Wanted) -> Choice:
    """Read what an act is about: ids, or something in common, or `all`; nobody acts on everything by leaving something out.

    Raises:
        InvalidArguments: there is no such act, or it is not said which jobs.
    """
    try:
        act = Action(action)
    except ValueError:
        raise InvalidArguments(
            f"there is no act {shown(action)} on many jobs: use {', '.join(Action)}", "action"
        ) from None
    has_filter = any(value is not None for value in wanted.values())
    if [which is not None, has_filter, all].count(True) != 1:
        raise InvalidArguments(
            "say which jobs: their ids, or what they have in common such as task=, or all=True", "ids"
        )
    if which is not None:
        return Choice(action=act, ids=_ids(which))
    if {"before", "limit"} & wanted.keys():
        raise InvalidArguments("an act on many jobs takes no before and no limit", "limit")
    return Choice(action=act, filters=tuple(_filters(act, read_filter(wanted))))


def _ids(which: str | Iterable[str]) -> tuple[JobId, ...]:
    ids = read_ids(which)
    if len(ids) > MOST_IDS:
        raise InvalidArguments(f"at most {MOST_IDS} ids at once; choose them by what they have in common", "ids")
    for id in ids:
        if not is_job_id(id):
            raise InvalidArguments(f"{shown(id)} is no id of a job", "ids")
    return tuple(ids)


def _filters(action: Action, filter: JobFilter) -> Iterable[JobFilter]:
    # Running ones last: a pending job that is claimed between the two looks is met as a running one.
    for state in _STATES[action]:
        if filter.state in (None, state) and (filter.view is None or state is JobState.PENDING):
            yield msgspec.structs.replace(filter, state=state, letters=state is JobState.DEAD)


def read_rate(rate: object) -> float | None:
    """So many jobs in a second; None: as fast as it goes."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.001 <= rate <= 1_000_000:
        raise InvalidArguments(f"rate must be a number of jobs in a second, such as 10, not {shown(rate)}", "rate")
    return float(rate)


async def counted(client: Client, choice: Choice) -> BulkAnswer:
    """A dry run."""
    if choice.ids is not None:
        return BulkAnswer(action=choice.action, matched=len(choice.ids), touched=0, dry_run=True)
    store = await client.store()
    matched, capped = 0, False
    for filter in choice.filters:
        counts = await store.inspect.counts(filter)
        matched += counts.total
        capped = capped or counts.capped
    return BulkAnswer(action=choice.action, matched=matched, touched=0, dry_run=True, capped=capped)


async def done(
    client: Client, choice: Choice, clock: Clock, rate: float | None, progress: BulkProgress | None = None
) -> BulkAnswer:
    """Do it, page by page; `rate`: to at most so many in a second. Stopped by `progress`, it tells of what was done so far."""
    store = await client.store()
    progress = BulkProgress() if progress is None else progress
    matched = requested = 0
    refused: list[NotTouched] = []
    async for ids in paced(_chosen(client, choice), clock, rate, progress):
        number, asked, not_touched = await _step(store, choice.action, ids)
        matched += len(ids)
        progress.touched += number
        requested += asked
        refused += not_touched[: MOST_TOLD - len(refused)]
    return BulkAnswer(
        action=choice.action,
        matched=matched,
        touched=progress.touched,
        requested=requested,
        dry_run=False,
        refused=tuple(refused[:MOST_TOLD]),
    )


async def _chosen(client: Client, choice: Choice) -> AsyncIterator[Sequence[JobId]]:
    if choice.ids is not None:
        yield choice.ids
        return
    for number, filter in enumerate(choice.filters):
        pages = all_ids(client, filter, heard_of=number == 0)
        if choice.action is Action.REPLAY:
            # The oldest first, as they came; so all of them have to be known before the first is done.
            yield [id async for page in pages for id in page][::-1]
        else:
            async for page in pages:
                yield page


async def paced(
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
                await _pause(clock, step / rate, progress)
            first = False
            if progress.is_stopped:
                return
            yield page[start : start + step]


async def _pause(clock: Clock, seconds: float, progress: BulkProgress) -> None:
    """At a slow pace a pause may be minutes long; whoever stops the act does not wait for it."""
    while seconds > 0 and not progress.is_stopped:
        nap = min(seconds, NAP_S)
        await clock.sleep(nap)
        seconds -= nap


async def _step(store: Store, action: Action, ids: Sequence[JobId]) -> tuple[int, int, list[NotTouched]]:
    """How many it was done to, how many of these were only asked to stop, and who was left alone."""
    match action:
        case Action.CANCEL:
            answers = await store.jobs.cancel(ids)
            cancelled = list(zip(ids, answers, strict=True))
            well = (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED)
            refused = [NotTouched(id, _too_late(answer)) for id, answer in cancelled if answer not in well]
            return len(ids) - len(refused), answers.count(CancelAnswer.REQUESTED), refused
        case Action.REPLAY:
            replayed = await store.jobs.replay(ids)
            refused = [NotTouched(each.id, _not_replayed(each.conflict)) for each in replayed if not each.done]
            return len(ids) - len(refused), 0, refused
        case Action.RUN_NOW:
            return await store.jobs.run_now(ids), 0, []
        case Action.DISCARD:
            return await store.jobs.discard(ids), 0, []


def _too_late(answer: CancelAnswer) -> str:
    return "there is no such job" if answer is CancelAnswer.UNKNOWN else f"it had ended: {answer}"


def _not_replayed(conflict: JobId | None) -> str:
    return "it is no dead letter" if conflict is None else f"job {conflict} is live with the same key"
