"""Dead letters: grouped by what went wrong, with a sample of each; replayed one by one, as a group or paced, or discarded."""

from __future__ import annotations

import msgspec

from drumbeat.model.death import DeadGroup
from drumbeat.web.api import dead, jobs
from drumbeat.web.api.filters import Chosen, filter_of
from drumbeat.web.api.records import JobRecord, Page
from drumbeat.web.call import Answer, Call, Role

from .acting import Act, act
from .jobs import row_of
from .rendering import render

REPLAY, DISCARD = "/api/v1/dead/replay", "/api/v1/dead/discard"
GROUPS = 50
_AGAIN = "Each is ready again, with all its retries."
_GONE = "They will not be run again. They stay in history until it is pruned."


class DeadQuery(msgspec.Struct, frozen=True, kw_only=True):
    task: str | None = None
    queue: str | None = None
    key: str | None = None
    error: str | None = None
    before: str | None = None

    def fields(self) -> dict[str, str]:
        names = ("task", "queue", "key", "error")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    group: DeadGroup
    sample: JobRecord | None
    """None: it was replayed, discarded or pruned since."""
    url: str
    is_current: bool
    acts: list[Act]


async def show(call: Call) -> Answer:
    query: DeadQuery = call.query
    fields = query.fields()
    groups: Page[DeadGroup] = await call.ask(dead.groups, query=dead.GroupsQuery(limit=GROUPS))
    samples = await jobs.samples(call, [group.sample for group in groups.items])
    page: Page[JobRecord] = await call.ask(dead.list_, query=dead.DeadListed(**fields, before=query.before))  # type: ignore[arg-type]
    # By the same filter as the list: what was discarded is dead, too, but no letter.
    store = await call.host.store()
    wanted = msgspec.structs.replace(filter_of(Chosen(**fields)), letters=True)  # type: ignore[arg-type]
    counts = await store.inspect.counts(wanted)
    return await render(
        call,
        "dead.html",
        page="dead",
        title="Dead letters",
        fields=query,
        is_narrowed=bool(fields),
        groups=[group_row(call, group, query, samples.get(group.sample)) for group in groups.items],
        rows=[row_of(job) for job in page.items],
        acts=picked_acts(call),
        filter=msgspec.json.encode(fields).decode(),
        matching=counts.dead,
        capped=counts.capped,
        older=call.url("/dead", **fields, before=page.next) if page.next else None,
        newest=call.url("/dead", **fields) if query.before else None,
    )


def group_row(call: Call, group: DeadGroup, query: DeadQuery, sample: JobRecord | None) -> GroupRow:
    return GroupRow(
        group=group,
        sample=sample,
        url=call.url("/dead", task=group.task, error=group.error),
        is_current=(query.task, query.error) == (group.task, group.error),
        acts=group_acts(call, group),
    )


def group_acts(call: Call, group: DeadGroup) -> list[Act]:
    """For a whole group. One without an error on record cannot be told from its task's others."""
    if not group.error:
        return []
    body: dict[str, object] = {"filter": {"task": group.task, "error": group.error}}
    what = f"{group.error} in {group.task}"
    return _two(call, body, f"Retry all: {what}?", f"Discard all: {what}?", "-group")


def picked_acts(call: Call) -> list[Act]:
    """For what is selected."""
    return _two(call, {}, "Give these dead letters a new life?", "Discard these dead letters?", "")


def _two(call: Call, body: dict[str, object], replay_title: str, discard_title: str, suffix: str) -> list[Act]:
    made = (
        act(
            call,
            Role.ADMIN,
            name=f"retry{suffix}",
            label="Retry",
            url=REPLAY,
            title=replay_title,
            text=_AGAIN,
            body=body,
            done="{n} dead letter{s} retried",
            rate=True,
            bulk=True,
        ),
        act(
            call,
            Role.ADMIN,
            name=f"discard{suffix}",
            label="Discard",
            url=DISCARD,
            title=discard_title,
            text=_GONE,
            body=body,
            done="{n} dead letter{s} discarded",
            danger=True,
            reason="required",
            bulk=True,
        ),
    )
    return [one for one in made if one is not None]
