"""Workflows: the list, and one with its graph."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.responses import Response

from drumbeat.core.workflow import Workflow, WorkflowGraph
from drumbeat.web.api import workflows
from drumbeat.web.api.workflows import WorkflowRecord, WorkflowsQuery
from drumbeat.web.request import DashboardRequest

from .action_button import DANGER, ActionButton, build_button
from .layout import is_any_region_requested, render_page
from .workflow_graph import MAX_DRAWN_EDGES, STATE_ORDER, GraphView, collapse, draw_jobs, draw_tasks, find_outside

STATE_STYLES = {"expired": "expired", "pending": "ready"}
"""Of counts whose style is not called as they are."""
LIVE = ("pending", "waiting", "running")


class CountView(msgspec.Struct, frozen=True, kw_only=True):
    state: str
    style: str
    number: int
    url: str


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    workflow: WorkflowRecord
    counts: list[CountView]
    labels: list[str]


class WorkflowPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of the page of a workflow."""

    by: Literal["job", "task"] | None = None
    """Boxes of the graph; large ones are always by task."""


async def index(request: DashboardRequest, query: WorkflowsQuery) -> Response:
    """GET /workflows."""
    name = query.name or None
    page = await workflows.list_workflows(request, msgspec.structs.replace(query, name=name))
    return await render_page(
        request,
        "workflows.html",
        page="workflows",
        title="Workflows",
        rows=[
            WorkflowView(workflow=each, counts=count_views(request, each), labels=label_texts(each))
            for each in page.items
        ],
        name=name,
        older=request.link_to("/workflows", name=name, before=page.next) if page.next else None,
        newest=request.link_to("/workflows", name=name) if query.before else None,
    )


async def show(request: DashboardRequest, id: str, query: WorkflowPageQuery) -> Response:
    """GET /workflows/{id}."""
    workflow = await workflows.show(request, id)
    graph, can_switch = None, False
    if is_any_region_requested(request, "graph"):
        found = await workflows.show_graph(request, id)
        can_switch = bool(found.nodes) and len(found.edges) <= MAX_DRAWN_EDGES
        now = await request.store_time()
        if can_switch and query.by != "task":
            store = await request.app.store()
            outside = find_outside(found)
            known = await store.inspect.get_jobs(outside, preview=0) if outside else {}
            graph = draw_jobs(found, now, lambda job: request.link_to(f"/jobs/{job}"), known)
        else:
            graph = _draw_by_task(request, workflow, found)
    return await render_page(
        request,
        "workflow.html",
        page="workflows",
        title=f"Workflow {workflow.name}",
        workflow=workflow,
        counts=count_views(request, workflow),
        labels=label_texts(workflow),
        total=sum(workflow.counts.values()),
        acts=list(filter(None, workflow_buttons(request, workflow))),
        graph=graph,
        can_switch=can_switch,
    )


def _draw_by_task(request: DashboardRequest, workflow: WorkflowRecord, graph: WorkflowGraph) -> GraphView:
    return draw_tasks(collapse(graph), lambda task: request.link_to("/jobs", workflow=workflow.id, task=task))


def count_views(request: DashboardRequest, workflow: Workflow) -> list[CountView]:
    """Its jobs by state, each number with the link to just those."""
    known = [state for state in STATE_ORDER if workflow.counts.get(state)]
    return [
        CountView(
            state=state,
            style=STATE_STYLES.get(state, state),
            number=workflow.counts[state],
            url=request.link_to("/jobs", workflow=workflow.id, state=state),
        )
        for state in known
    ]


def label_texts(workflow: Workflow) -> list[str]:
    return [f"{name}={value}" if value else name for name, value in sorted(workflow.labels.items())]


def workflow_buttons(request: DashboardRequest, workflow: WorkflowRecord) -> list[ActionButton | None]:
    made: list[ActionButton | None] = []
    if workflow.counts.get("dead") or workflow.capped:
        made.append(
            build_button(
                request,
                workflows.replay,
                "Replay failed",
                "Replay what failed of this workflow?",
                of=workflow.id,
                text="Its dead letters are ready again, with all their retries. Jobs that were cancelled because of them "
                "wait again. What has succeeded is not run again.",
                confirm="Replay",
                done="{n} dead letter{s} replayed",
                bulk=True,
            )
        )
    # Of a very large one there may be live jobs beyond those that were counted.
    if any(workflow.counts.get(state) for state in LIVE) or (workflow.capped and workflow.cancelled_at is None):
        made.append(
            build_button(
                request,
                workflows.cancel,
                "Cancel",
                "Cancel this workflow?",
                of=workflow.id,
                text="Jobs that have not started never run, and nothing can be added. Running jobs are asked to stop.",
                confirm="Cancel the workflow",
                dismiss="Back",
                done="{n} job{s} cancelled",
                bulk=True,
                **DANGER,
            )
        )
    return made
