"""`/api/v1/jobs`: look at jobs, enqueue one, act on one or on many."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from drumbeat.ids import JobId
from drumbeat.model.job import Attempt, CancelAnswer, JobCounts
from drumbeat.nouns.bulk import Action
from drumbeat.nouns.explaining import Explanation
from drumbeat.redaction import DOTS
from drumbeat.web.api.acting import BulkRecord, acted, target_of
from drumbeat.web.api.ended import page_ended
from drumbeat.web.api.filters import Chosen, Counted, Listed, filter_of
from drumbeat.web.api.finding import in_its_state
from drumbeat.web.api.records import (
    PREVIEW,
    JobRecord,
    Page,
    job_page,
    job_record,
    shown_error,
    store_now,
    whole_record,
)
from drumbeat.web.call import Answer, Call
from drumbeat.web.problem import Problem

JsonArguments = Annotated[Raw, Meta(extra_json_schema={"type": ["object", "string"]})]
"""A JSON object of arguments by name, or the text of one."""


class NewCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a task to be queued. What is left out is as the task says."""

    task: str
    """The name of a task that the program, or a living worker, has."""
    args: JsonArguments | UnsetType = UNSET
    """A JSON object of arguments by name, or the text of one. In an object every number arrives as it is written; a browser
    rounds large ones while it writes, so there the text is better."""
    queue: str | None = None
    """Another queue than the task's own."""
    priority: int | None = None
    """0 first, 9 last."""
    delay: float | str | None = None
    """Seconds, or text such as 5m."""
    at: datetime | None = None
    """With its offset. Excludes delay."""
    key: str | None = None
    """What to find, cancel or deduplicate it by."""
    unique: bool | Literal["pending"] | None = None
    """With a key: true: not if a live job of the task has it; "pending": a job that already runs does not count."""
    retries: int | None = None
    """How often it is tried again after a failure."""
    timeout: float | str | None = None
    """Seconds, or text such as 5m."""
    why: str = ""
    """For the audit."""

    def target(self) -> str:
        return self.task


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """The job of an enqueue."""

    id: JobId
    created: bool
    """False: a live job had the key, and this is its id."""


class CancelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cancellation."""

    answer: CancelAnswer
    """cancelled: it never runs; requested: it was running and hears of it; else the state in which it had ended."""
    job: JobRecord


class BulkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on many jobs: by their ids, by what they have in common, or on all that it can be done to."""

    action: Action
    """cancel and run_now are for live jobs, replay and discard for dead letters."""
    ids: list[str] | None = None
    """At most 10,000."""
    filter: Chosen | None = None
    """What they have in common; not an empty one."""
    all: bool = False
    """Every job that it can be done to."""
    rate: float | None = None
    """At most so many in a second. It then goes on in the background, and the answer is 202."""
    dry_run: bool = False
    """Only count them; changes nothing, and is not in the audit."""
    why: str = ""
    """For the audit."""

    def target(self) -> str:
        return f"{self.action} {target_of(self.ids, self.filter, self.all)}"


async def list_(call: Call) -> Page[JobRecord]:
    return await read_page(call, call.query)


async def read_page(call: Call, listed: Listed, preview: int = PREVIEW) -> Page[JobRecord]:
    store = await call.host.store()
    has_end = listed.ended_since is not None or listed.ended_until is not None
    read = partial(page_ended, store, listed) if has_end else None
    return await job_page(store, filter_of(listed), preview, read=read)


async def counts(call: Call) -> JobCounts:
    query: Counted = call.query
    store = await call.host.store()
    return await store.inspect.counts(filter_of(query))


async def enqueue(call: Call) -> Enqueued:
    body: NewCall = call.body
    job = await call.host.jobs.enqueue(
        body.task,
        arguments(body.args),
        queue=body.queue,
        priority=body.priority,
        delay=body.delay,
        at=body.at,
        key=body.key,
        unique=body.unique,
        retries=body.retries,
        timeout=body.timeout,
    )
    call.touched = int(job.created)
    return Enqueued(id=job.id, created=job.created)


def arguments(given: Raw | UnsetType) -> str:
    """The JSON text of arguments that were given as an object, or as the text of one."""
    if given is UNSET:
        return "{}"
    text = bytes(given).decode()
    text = msgspec.json.decode(text, type=str) if text.startswith('"') else text
    if DOTS in text:
        raise Problem(422, "args still has a value that is hidden (•••): write it anew", argument="args")
    return text


async def show(call: Call) -> JobRecord:
    return await _record(call, call.path["id"])


async def attempts(call: Call) -> Page[Attempt]:
    id = call.path["id"]
    await call.host.jobs.show(id)
    found = await call.host.jobs.attempts(id)
    return Page(items=[msgspec.structs.replace(each, error=shown_error(each.error)) for each in found])


async def explain(call: Call) -> Explanation:
    return await call.host.jobs.explain(call.path["id"])


async def cancel(call: Call) -> CancelRecord:
    id = call.path["id"]
    await call.host.jobs.show(id)
    [answer] = await call.host.jobs.cancel(id)
    if answer is CancelAnswer.UNKNOWN:
        raise Problem(404, f"no job {id}", argument="id", type="job-not-found")
    call.touched = int(answer in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED))
    return CancelRecord(answer=answer, job=await _record(call, id))


async def retry(call: Call) -> JobRecord:
    with in_its_state():
        return await whole_record(await call.host.jobs.retry(call.path["id"]), await store_now(call.host))


async def run_now(call: Call) -> JobRecord:
    id = call.path["id"]
    with in_its_state():
        await call.host.jobs.run_now(id)
    return await _record(call, id)


async def bulk(call: Call) -> BulkRecord | Answer:
    body: BulkBody = call.body
    return await acted(
        call, body.action, ids=body.ids, filter=body.filter, all=body.all, rate=body.rate, dry_run=body.dry_run
    )


async def samples(call: Call, ids: list[JobId]) -> dict[JobId, JobRecord]:
    """Some jobs with their whole errors, but without arguments and results; those that are gone are left out."""
    store = await call.host.store()
    found = await store.inspect.records(ids, preview=0)
    now = await store_now(call.host)
    return {id: job_record(job, now) for id, job in found.items()}


async def _record(call: Call, id: str) -> JobRecord:
    job = await call.host.jobs.show(id)
    return await whole_record(job, await store_now(call.host))
