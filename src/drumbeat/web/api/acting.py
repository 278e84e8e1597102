"""One act on many jobs, as a request: at once, or, paced or with very many, in the background after the answer."""

from __future__ import annotations

from typing import Any

import msgspec

from drumbeat.nouns.bulk import Action, BulkAnswer
from drumbeat.web.api.filters import Chosen, wanted_of
from drumbeat.web.call import Answer, Call


class BulkRecord(BulkAnswer, frozen=True, kw_only=True):
    """What came of an act on many jobs."""

    goes_on: bool = False
    """It goes on in the background, and the audit will tell how many it touched; `matched` is how many there were to begin
    with."""


def target_of(ids: list[str] | None, filter: Chosen | None, all: bool) -> str:
    """What the audit says that the act was about."""
    if ids is not None:
        return ids[0] if len(ids) == 1 else f"{len(ids)} jobs: {', '.join(ids[:5])}{' ...' if len(ids) > 5 else ''}"
    if filter is not None:
        return " ".join(f"{name}={value}" for name, value in wanted_of(filter).items())
    return "all" if all else ""


async def acted(
    call: Call,
    action: Action,
    *,
    ids: list[str] | None,
    filter: Chosen | None,
    all: bool,
    rate: float | None = None,
    dry_run: bool = False,
) -> BulkRecord | Answer:
    """Do it, or count, or begin it."""
    jobs = call.host.jobs
    wanted: Any = {} if filter is None else wanted_of(filter)
    # Counted in any case: what cannot be meant is refused here, and nobody waits for an answer while a million are done.
    counted = await jobs.bulk(action, ids, all=all, rate=rate, dry_run=True, **wanted)
    if dry_run:
        call.touched = 0
        return _record(counted)
    if rate is None and not counted.capped:
        answer = await jobs.bulk(action, ids, all=all, **wanted)
        call.touched = answer.touched
        return _record(answer)

    async def go_on() -> None:
        answer = await jobs.bulk(action, ids, all=all, rate=rate, **wanted)
        call.touched = answer.touched

    begun = msgspec.structs.replace(_record(counted), dry_run=False, goes_on=True)
    return Answer(status=202, body=begun, after=go_on)


def _record(answer: BulkAnswer) -> BulkRecord:
    return BulkRecord(**msgspec.structs.asdict(answer))
