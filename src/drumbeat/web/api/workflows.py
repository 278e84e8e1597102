"""`/api/v1/workflows`: workflows, their graphs, and acts on all jobs of one."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from drumbeat.core.workflow import Workflow, WorkflowGraph, WorkflowState
from drumbeat.errors import WorkflowNotFound
from drumbeat.web.api.bulk_action import BulkRecord
from drumbeat.web.api.records import Page
from drumbeat.web.fields import Before, Limit, Reason, doc
from drumbeat.web.request import DashboardRequest

MAX_LISTED = 100


class WorkflowsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workflows, newest first."""

    name: Annotated[str | None, doc("The whole name.")] = None
    before: Before = None
    limit: Limit = 50


class WorkflowRecord(Workflow, frozen=True, kw_only=True):
    """A workflow, with what its jobs are at this moment."""

    state: Annotated[
        WorkflowState,
        doc(
            "From its counts. waiting: all that is left waits, and there is a dead letter to decide on; failed: it has "
            "ended, and not all of its jobs succeeded."
        ),
    ]


class WorkflowAct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on all jobs of a workflow."""

    dry_run: Annotated[bool, doc("Only count them: nothing is changed, and nothing is recorded in the audit.")] = False
    reason: Reason = ""


async def list_workflows(request: DashboardRequest, query: WorkflowsQuery) -> Page[WorkflowRecord]:
    limit = max(1, min(MAX_LISTED, query.limit))
    found = await request.app.workflows.list(name=query.name, before=query.before, limit=limit)
    return Page(items=[to_record(each) for each in found], next=found[-1].id if len(found) >= limit else None)


async def show(request: DashboardRequest, id: str) -> WorkflowRecord:
    return to_record(await request.app.workflows.show(id))


async def show_graph(request: DashboardRequest, id: str) -> WorkflowGraph:
    return await request.app.workflows.graph(id)


async def cancel(request: DashboardRequest, id: str, body: WorkflowAct) -> BulkRecord:
    done = await request.app.workflows.cancel(id, dry_run=body.dry_run)
    return BulkRecord(**msgspec.structs.asdict(done))


async def replay(request: DashboardRequest, id: str, body: WorkflowAct) -> BulkRecord:
    done = await request.app.workflows.replay(id, dry_run=body.dry_run)
    return BulkRecord(**msgspec.structs.asdict(done))


async def find_workflow(request: DashboardRequest, id: str) -> WorkflowRecord | None:
    """None: it is not in the store, or no longer."""
    try:
        return await show(request, id)
    except WorkflowNotFound:
        return None


def to_record(workflow: Workflow) -> WorkflowRecord:
    fields: dict[str, Any] = msgspec.structs.asdict(workflow)
    return WorkflowRecord(**fields, state=workflow.state)
