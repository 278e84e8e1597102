"""`drumbeat workflows`: list, show, cancel, replay."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import audited
from drumbeat.cli.connection import call_app
from drumbeat.cli.failures import BadInput, NotDone
from drumbeat.cli.job_view import format_suspension
from drumbeat.cli.options import CliTarget, argument, dry_option, limit_option, option, reason_option, watch_option
from drumbeat.cli.output import Column
from drumbeat.cli.resource_group import ResourceGroup
from drumbeat.core.job import JobState
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.admin.bulk import BulkResult
    from drumbeat.app import Drumbeat
    from drumbeat.core.workflow import GraphNode, TaskNode, Workflow, WorkflowGraph

command = ResourceGroup("workflows", "Workflows: jobs that have a name together, and what they wait for.")
workflow_argument = argument("id", shell_complete=completion.workflows)
act_options = (
    workflow_argument,
    option("--yes", "-y", is_flag=True, help="Do not ask."),
    dry_option,
    reason_option,
)
ORDER = ("pending", "waiting", "running", "succeeded", "dead", "cancelled", "expired")


def format_counts(counts: dict[str, int], *, capped: bool = False) -> str:
    """3 succeeded, 1 running."""
    known = [state for state in ORDER if counts.get(state)] + sorted(counts.keys() - set(ORDER))
    words = ", ".join(f"{counts[state]:,} {state}" for state in known) or formatting.EMPTY
    return f"{words} and more" if capped else words


def format_labels(labels: dict[str, str]) -> str:
    return formatting.format_value(" ".join(f"{name}={value}" for name, value in sorted(labels.items())), 60)


WORKFLOWS: output.TextTable[Workflow] = output.TextTable(
    Column("id", lambda each, _: each.id),
    Column("name", lambda each, _: formatting.format_value(each.name, 40), elastic=True),
    Column("state", lambda each, _: str(each.state)),
    Column("jobs", lambda each, _: format_counts(each.counts, capped=each.capped), elastic=True),
    Column("labels", lambda each, _: format_labels(each.labels), elastic=True, drop=1),
    Column("created (UTC)", lambda each, now: formatting.format_timestamp(each.created_at, now), drop=2),
)
NODES: output.TextTable[tuple[GraphNode, int]] = output.TextTable(
    Column("job", lambda each, _: each[0].id),
    Column("task", lambda each, _: formatting.format_value(each[0].task, 40), elastic=True),
    Column("state", lambda each, now: _format_node_state(each[0], now)),
    Column("parents", lambda each, _: str(each[1]), number=True, drop=1),
    Column("started (UTC)", lambda each, now: formatting.format_timestamp(each[0].started_at, now), drop=3),
    Column("took", lambda each, _: formatting.format_elapsed(each[0].started_at, each[0].finished_at), drop=2),
)
TASKS: output.TextTable[TaskNode] = output.TextTable(
    Column("task", lambda each, _: formatting.format_value(each.task, 60), elastic=True),
    Column("jobs", lambda each, _: format_counts(each.counts), elastic=True),
)


def _format_node_state(node: GraphNode, now: datetime) -> str:
    word = str(node.view(now))
    is_suspended = node.suspended is not None and node.state is JobState.PENDING
    return f"{word} ({format_suspension(node.suspended)})" if is_suspended and node.suspended else word


@command.verb("list", watch_option, limit_option(1_000, "workflows"))
@click.option("--name", metavar="NAME", help="With this name.")
@click.option("--before", metavar="ID", help="Only workflows older than this one: the next page.")
def list_(target: CliTarget, name: str | None, before: str | None, limit: int) -> None:
    """List workflows, newest first."""
    output.list_and_show(
        target,
        lambda app: app.workflows.list(name=name, before=before, limit=limit),
        WORKFLOWS,
        empty="No workflow in {store}." if name is None else "No workflow matches in {store}.",
        limit=limit,
        to_json=_to_json,
    )


def _to_json(workflow: Workflow) -> dict[str, object]:
    return output.record_fields(workflow, state=str(workflow.state))


@command.verb("show", workflow_argument)
def show(target: CliTarget, id: str) -> None:
    """Show a workflow and its jobs; of more than 200 jobs, its tasks."""

    async def read(app: Drumbeat) -> tuple[Workflow, WorkflowGraph]:
        return await app.workflows.show(id), await app.workflows.graph(id)

    workflow, graph = call_app(target, read)
    output.show_record(
        target,
        workflow,
        lambda found, now: _show_workflow(found, graph, now),
        lambda found: _to_json(found) | {"graph": graph},
    )


def _show_workflow(workflow: Workflow, graph: WorkflowGraph, now: datetime) -> None:
    facts = {
        "id": workflow.id,
        "name": formatting.format_value(workflow.name, 200),
        "state": str(workflow.state),
        "jobs": format_counts(workflow.counts, capped=workflow.capped),
        "created at": formatting.format_exact(workflow.created_at, now),
    }
    more = {
        "labels": format_labels(workflow.labels),
        "cancelled at": formatting.format_exact(workflow.cancelled_at, now),
    }
    output.show_page(facts, more)
    output.print_line("")
    if graph.nodes:
        parents = {node.id: 0 for node in graph.nodes}
        for edge in graph.edges:
            parents[edge.child] = parents.get(edge.child, 0) + 1
        NODES.show([(node, parents[node.id]) for node in graph.nodes], now)
    elif graph.tasks:
        TASKS.show(graph.tasks, now)
    if graph.capped:
        output.print_line("It has more jobs than were counted.")


@command.verb("cancel", *act_options)
def cancel(target: CliTarget, id: str, yes: bool, dry_run: bool) -> None:
    """Cancel what has not ended of a workflow: nothing new of it starts, and running jobs are asked to stop."""
    done = _act(target, "cancel", id, yes, dry_run, lambda app, dry: app.workflows.cancel(id, dry_run=dry), "live job")
    if done is not None:
        asked = f", {done.requested:,} of them running: asked to stop" if done.requested else ""
        output.report(target, done, f"{format_count(done.touched, 'job')} cancelled{asked}.")


@command.verb("replay", *act_options)
def replay(target: CliTarget, id: str, yes: bool, dry_run: bool) -> None:
    """Replay the dead letters of a workflow; jobs that were cancelled because of them wait again."""
    done = _act(
        target, "replay", id, yes, dry_run, lambda app, dry: app.workflows.replay(id, dry_run=dry), "dead letter"
    )
    if done is None:
        return
    output.report(target, done, f"{format_count(done.touched, 'dead letter')} replayed.")
    for refused in done.refused:
        click.echo(f"{refused.id} was not: {refused.reason}.", err=True)
    if done.refused:
        raise NotDone(f"{format_count(done.matched - done.touched, 'dead letter')} not replayed")


def _act(
    target: CliTarget,
    verb: str,
    id: str,
    yes: bool,
    dry_run: bool,
    call: Callable[[Drumbeat, bool], Awaitable[BulkResult]],
    what: str,
) -> BulkResult | None:
    """Count, ask, act on record. None: it was a dry run, which is reported here."""

    async def run(app: Drumbeat) -> BulkResult | None:
        counted = await call(app, True)
        many = f"{'at least ' if counted.capped else ''}{format_count(counted.matched, what)}"
        if dry_run:
            output.report(target, counted, f"This would {verb} {many}.\nNothing was done.")
            return None
        if not yes and (counted.matched > 1 or counted.capped):
            _confirm(f"{verb} {many} of workflow {id}")
        async with audited(app, target, f"workflows.{verb}", id) as acting:
            done = await call(app, False)
            acting.touched = done.touched
        return done

    return call_app(target, run)


def _confirm(deed: str) -> None:
    if not sys.stdin.isatty():
        raise BadInput(f"this would {deed}: add --yes to do it")
    if not click.confirm(f"{deed[:1].upper()}{deed[1:]}?", err=True):
        raise NotDone("nothing was done")
