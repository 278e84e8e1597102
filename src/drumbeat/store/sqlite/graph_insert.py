"""Inserting jobs with their edges to parents, all or none. Runs on the writer's thread.

What the edges are worth is decided by `dependency_rows.plan_graph`. The single writer keeps parents from ending meanwhile.
"""

from collections.abc import Collection, Sequence

import msgspec

from drumbeat.core.claim import WriteStatus
from drumbeat.core.dependencies import GraphAnswer, NewGraph
from drumbeat.core.job import AddResult, NewJob
from drumbeat.core.step import NewStep
from drumbeat.core.uniqueness import select_new, unique_keys
from drumbeat.errors import WorkflowCancelled, WorkflowConflict, WorkflowNotFound
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.dependency_rows import group_releases
from drumbeat.store.graph_plan import (
    EdgeRow,
    GraphPlan,
    missing_parent_error,
    outside_parents,
    plan_graph,
    refuse_conflicts,
    refuse_stored,
)
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import EngineStatements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.advancer import SqliteAdvancer, read_parents, read_releases
from drumbeat.store.sqlite.insert import Row, SqliteInserter, load_unique_keys
from drumbeat.store.sqlite.steps import record_steps
from drumbeat.store.sqlite.writer import WriteContext

_decode_workflows = msgspec.json.Decoder(list[tuple[str, int]]).decode


class SqliteGraphInserter:
    def __init__(self, sql: EngineStatements, inserter: SqliteInserter, advancer: SqliteAdvancer) -> None:
        self._sql = sql.dependencies
        self._jobs = sql.jobs
        self._steps = sql.steps
        self._inserter = inserter
        self._advancer = advancer

    def add(self, write: WriteContext, graph: NewGraph) -> GraphAnswer:
        """Insert all or none; raising undoes everything."""
        if graph.step is not None and graph.instance is not None:
            refused = self._check_step(write, graph.instance, graph.step)
            if refused is not None:
                return refused
        answers, new = self._select_new(write, graph)
        self._insert_workflow(write, graph, answers, {job.workflow for job in new if job.workflow is not None})
        if new:
            self._insert(write, graph, new)
        if graph.step is not None and graph.instance is not None:
            record_steps(self._steps, write, graph.instance, [graph.step])
        return GraphAnswer(results=answers)

    def _check_step(self, write: WriteContext, instance: InstanceId, step: NewStep) -> GraphAnswer | None:
        """The answer if nothing is to be stored."""
        current = {"ids": as_json([step.claim.id]), "instance": instance}
        if step.claim not in rows.claim_refs(write.db, self._steps.current_claims, current):
            return GraphAnswer(results=[], status=WriteStatus.STALE)
        recorded = write.db.rows(self._sql.recorded_step, {"job": step.claim.id, "name": step.name})
        if recorded:
            return GraphAnswer(results=[], status=WriteStatus.DUPLICATE, recorded=recorded[0][0])
        return None

    def _select_new(self, write: WriteContext, graph: NewGraph) -> tuple[list[AddResult], list[NewJob]]:
        ids = as_json([job.id for job in graph.jobs])
        known = rows.ids(write.db.value(self._jobs.known_ids, {"ids": ids}))
        keys = load_unique_keys(self._jobs, write, unique_keys(graph.jobs))
        answers, new = select_new(graph.jobs, known, keys)
        if len(new) < len(graph.jobs):
            refuse_conflicts(graph, answers)
        return answers, new

    def _insert_workflow(
        self, write: WriteContext, graph: NewGraph, answers: Sequence[AddResult], named: Collection[str]
    ) -> None:
        workflow = graph.workflow
        own = set() if workflow is None else {workflow.id}
        if not named and not own:
            return
        known = dict(_decode_workflows(write.db.value(self._sql.workflows, {"ids": as_json(sorted(own | set(named)))})))
        for id in sorted(named):
            if known.get(id):
                raise WorkflowCancelled(id)
            if id not in known and id not in own:
                raise WorkflowNotFound(id)
        if workflow is None or workflow.id in known:
            return
        refuse_stored(workflow, graph.jobs, answers)
        if workflow.unique:
            live = write.db.value(self._sql.live_namesake, {"name": workflow.name})
            if live is not None:
                raise WorkflowConflict(workflow.name, live)
        facts = {"id": workflow.id, "name": workflow.name, "labels": as_json(workflow.labels), "now": write.now}
        write.db.run(self._sql.insert_workflow, facts)

    def _insert(self, write: WriteContext, graph: NewGraph, new: Sequence[NewJob]) -> None:
        plan = self._plan(write, graph, new)
        bound = {edge.parent for edge in plan.edges if edge.binding}
        if plan.live_parents:
            write.db.run(self._sql.flag_parents, {"ids": as_json(plan.live_parents), "flag": 1})
        if live_bound := bound.intersection(plan.live_parents):
            write.db.run(self._sql.flag_parents, {"ids": as_json(sorted(live_bound)), "flag": 2})
        nodes: dict[JobId, Row] = {
            id: (plan.open_parents.get(id, -1), _parent_flag(id, plan, bound), int(id in plan.binding))
            for id in plan.open_parents.keys() | plan.new_parents
        }
        self._inserter.add_nodes(write, new, nodes)
        by_kind: dict[Row, list[Row]] = {}
        for edge in plan.edges:
            by_kind.setdefault(_kind(edge), []).append((edge.parent, edge.child, edge.place))
        for kind, edges in by_kind.items():
            write.db.run_rows(self._sql.insert_edges, 3, edges, kind)
        if plan.cancelled:
            failed = [(child, error) for child, (_, error) in plan.cancelled.items()]
            parents = [(child, parent) for child, (parent, _) in plan.cancelled.items()]
            self._advancer.cancel_at_once(write, failed, parents)
        due = [job for job in new if not plan.open_parents.get(job.id) and job.id not in plan.cancelled]
        if due:
            write.notify(min(write.now + job.delay if job.run_at is None else job.run_at for job in due))

    def _plan(self, write: WriteContext, graph: NewGraph, new: Sequence[NewJob]) -> GraphPlan:
        if not graph.edges:
            return plan_graph(new, [], {})
        named = outside_parents(new, graph.edges)
        wanted = {"ids": as_json(named)}
        parents = {row.id: row for row in read_parents(write.db, self._sql.parents, wanted)} if named else {}
        for id in named:
            if id not in parents:
                raise missing_parent_error(graph, id, write.db.value(self._jobs.pruned_before))
        releases = read_releases(write.db, self._sql.releases_of, wanted) if named else []
        return plan_graph(new, graph.edges, parents, group_releases(releases))


def _parent_flag(id: JobId, plan: GraphPlan, bound: Collection[JobId]) -> int:
    """`is_parent`. 0 of a job that is cancelled at once: its children were judged by that, so its end leaves no release."""
    return 1 + (id in bound) if id in plan.new_parents else 0


def _kind(edge: EdgeRow) -> Row:
    return (edge.life, edge.if_fails, edge.binding, edge.argument)
