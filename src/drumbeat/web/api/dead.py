"""`/api/v1/dead`: dead letters, one by one, in groups by error, and acts on many of them."""

from __future__ import annotations

import msgspec

from drumbeat.model.death import DeadGroup
from drumbeat.nouns.bulk import Action
from drumbeat.redaction import DOTS, mask_urls
from drumbeat.web.api.acting import BulkRecord, acted, target_of
from drumbeat.web.api.filters import Chosen, Listed, filter_of
from drumbeat.web.api.finding import in_its_state
from drumbeat.web.api.records import PREVIEW, JobRecord, Page, job_page, store_now, whole_record
from drumbeat.web.call import Answer, Call, clamped


class DeadListed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to list, newest first."""

    task: str | None = None
    """The name of a task."""
    queue: str | None = None
    """The name of a queue."""
    key: str | None = None
    """The whole key."""
    error: str | None = None
    """A part of the error's type or message."""
    id: str | None = None
    """An id, or its beginning (at least 4 characters)."""
    before: str | None = None
    """Only jobs older than the one of this id: `next` of the page before."""
    limit: int = 50
    """At most so many; 1 to 500."""


class GroupsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: int = 50
    """At most so many groups; 1 to 500."""


class ReplayBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to give a new life: by their ids, by what they have in common, or all."""

    ids: list[str] | None = None
    """At most 10,000."""
    filter: Chosen | None = None
    """What they have in common; not an empty one."""
    all: bool = False
    """Every dead letter."""
    rate: float | None = None
    """At most so many in a second. It then goes on in the background, and the answer is 202."""
    dry_run: bool = False
    """Only count them; changes nothing, and is not in the audit."""
    why: str = ""
    """For the audit."""

    def target(self) -> str:
        return target_of(self.ids, self.filter, self.all)


class DiscardBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to let go: they stay in history until it is pruned."""

    ids: list[str] | None = None
    """At most 10,000."""
    filter: Chosen | None = None
    """What they have in common; not an empty one."""
    all: bool = False
    """Every dead letter."""
    dry_run: bool = False
    """Only count them; changes nothing, and is not in the audit."""
    why: str = ""
    """For the audit."""

    def target(self) -> str:
        return target_of(self.ids, self.filter, self.all)


async def list_(call: Call) -> Page[JobRecord]:
    query: DeadListed = call.query
    filter = filter_of(Listed(state="dead", **msgspec.structs.asdict(query)))
    store = await call.host.store()
    return await job_page(store, msgspec.structs.replace(filter, letters=True))


async def groups(call: Call) -> Page[DeadGroup]:
    query: GroupsQuery = call.query
    store = await call.host.store()
    found = await store.inspect.groups(clamped(query.limit))
    return Page(
        items=[msgspec.structs.replace(each, message=mask_urls(each.message, DOTS)[:PREVIEW]) for each in found]
    )


async def show(call: Call) -> JobRecord:
    with in_its_state():
        job = await call.host.dead.show(call.path["id"])
    return await whole_record(job, await store_now(call.host))


async def replay(call: Call) -> JobRecord:
    id = call.path["id"]
    with in_its_state():
        await call.host.dead.replay(id)
    return await whole_record(await call.host.jobs.show(id), await store_now(call.host))


async def discard(call: Call) -> JobRecord:
    id = call.path["id"]
    with in_its_state():
        await call.host.dead.discard(id)
    return await whole_record(await call.host.jobs.show(id), await store_now(call.host))


async def replay_many(call: Call) -> BulkRecord | Answer:
    body: ReplayBody = call.body
    return await acted(
        call, Action.REPLAY, ids=body.ids, filter=body.filter, all=body.all, rate=body.rate, dry_run=body.dry_run
    )


async def discard_many(call: Call) -> BulkRecord | Answer:
    body: DiscardBody = call.body
    return await acted(call, Action.DISCARD, ids=body.ids, filter=body.filter, all=body.all, dry_run=body.dry_run)
