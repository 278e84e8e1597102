"""Dead letters: grouped by error with samples; replay and discard of one, a group or all."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.web.api import dead, jobs
from drumbeat.web.api.dead import DeadLettersQuery
from drumbeat.web.api.job_filters import ApiJobFilter, to_job_filter
from drumbeat.web.api.records import JobRecord
from drumbeat.web.request import DashboardRequest

from .action_button import ActionButton, replay_and_discard_buttons
from .jobs import row_of
from .layout import render_page

GROUPS = 50
FILTER_FIELDS = ("task", "queue", "key", "error")


class DeadGroupView(msgspec.Struct, frozen=True, kw_only=True):
    group: DeadLetterGroup
    sample: JobRecord | None
    """None: replayed, discarded or pruned meanwhile."""
    url: str
    is_current: bool
    acts: list[ActionButton]


async def show(request: DashboardRequest, query: DeadLettersQuery) -> Response:
    fields = {name: value for name in FILTER_FIELDS if (value := getattr(query, name)) is not None}
    groups = await dead.list_groups(request, dead.DeadGroupsQuery(limit=GROUPS))
    samples = await jobs.load_samples(request, [group.sample for group in groups.items])
    page = await dead.list_dead_letters(request, DeadLettersQuery(**fields, before=query.before))
    # By the same filter as the list: discarded jobs are in state dead, but no dead letters.
    store = await request.app.store()
    wanted = msgspec.structs.replace(to_job_filter(ApiJobFilter(**fields)), dead_letters=True)
    counts = await store.inspect.count_jobs(wanted)
    return await render_page(
        request,
        "dead.html",
        page="dead",
        title="Dead letters",
        fields=query,
        is_narrowed=bool(fields),
        groups=[group_row(request, group, query, samples.get(group.sample)) for group in groups.items],
        rows=[row_of(job) for job in page.items],
        acts=replay_and_discard_buttons(request),
        filter=msgspec.json.encode(fields).decode(),
        matching=counts.dead,
        capped=counts.capped,
        older=request.link_to("/dead", **fields, before=page.next) if page.next else None,
        newest=request.link_to("/dead", **fields) if query.before else None,
    )


def group_row(
    request: DashboardRequest, group: DeadLetterGroup, query: DeadLettersQuery, sample: JobRecord | None
) -> DeadGroupView:
    return DeadGroupView(
        group=group,
        sample=sample,
        url=request.link_to("/dead", task=group.task, error=group.error),
        is_current=(query.task, query.error) == (group.task, group.error),
        acts=group_buttons(request, group),
    )


def group_buttons(request: DashboardRequest, group: DeadLetterGroup) -> list[ActionButton]:
    """For a whole group. One without a recorded error cannot be selected by a filter."""
    if not group.error:
        return []
    body: dict[str, object] = {"filter": {"task": group.task, "error": group.error}}
    what = f"{group.error} in {group.task}"
    return replay_and_discard_buttons(
        request, f"Replay all: {what}?", f"Discard all: {what}?", body=body, suffix="-group"
    )
