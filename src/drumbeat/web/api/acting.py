"""One act on many jobs, as a request: at once, or, paced or with very many, in the background after the answer."""

from __future__ import annotations

from typing import Any

import msgspec

from drumbeat.nouns.bulk import Action, BulkAnswer, BulkProgress
from drumbeat.web.api.filters import Chosen, wanted_of
from drumbeat.web.api.records import store_now
from drumbeat.web.background import BackgroundAct
from drumbeat.web.call import Answer, Call
from drumbeat.web.problem import Problem


class BulkRecord(BulkAnswer, frozen=True, kw_only=True):
    """What came of an act on many jobs."""

    goes_on: bool = False
    """It goes on in the background of this process, and the audit will tell how many it touched; `matched` is how many there
    were to begin with."""
    act: str | None = None
    """Of one that goes on: its id in the audit, where it can be watched, and stopped by `POST /api/v1/audit/{id}/stop`."""


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

    under_way = BackgroundAct(
        id=call.act,
        who=call.caller.name,
        what=f"{action}: {target_of(ids, filter, all)}",
        began_at=await store_now(call.host),
        matched=counted.matched,
        is_capped=counted.capped,
        rate=rate,
        progress=BulkProgress(),
    )
    call.parts.background.begin(under_way)

    async def go_on() -> None:
        progress = under_way.progress
        try:
            await jobs.bulk(action, ids, all=all, rate=rate, progress=progress, **wanted)
        finally:
            # Also of one that was broken off: what it touched until then is done.
            call.touched = progress.touched
            call.parts.background.end(call.act)
        if progress.is_stopped:
            raise Problem(409, f"stopped by {progress.stopped_by}")

    begun = msgspec.structs.replace(_record(counted), dry_run=False, goes_on=True, act=call.act)
    return Answer(status=202, body=begun, after=go_on)


def _record(answer: BulkAnswer) -> BulkRecord:
    return BulkRecord(**msgspec.structs.asdict(answer))
