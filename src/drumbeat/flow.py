"""`Flow`: a workflow that is being made, `app.workflow(...)`. It is stored as a whole by `enqueue`."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar, overload

import msgspec

from drumbeat.core.dependencies import NewWorkflow
from drumbeat.core.job import NewJob
from drumbeat.errors import InvalidArguments, JobExpired, JobNotFound, UniqueConflict, WorkflowError
from drumbeat.flow_parts import Group, Node, Part
from drumbeat.ids import JobId, new_job_id
from drumbeat.loop_check import awaited_on_loop, check_no_loop
from drumbeat.names import check_key, check_name, short_repr
from drumbeat.protocols import Enqueuer
from drumbeat.tasks.options import POLICY_WITHOUT_PARENTS
from drumbeat.tasks.parents import Parent, ParentPolicy, add_parents, parse_parents, parse_policy
from drumbeat.workflow_handle import SyncWorkflowHandle, WorkflowHandle

R = TypeVar("R")
MAX_LABELS = 20


class Flow:
    """Jobs that are stored together, all or none, with what they wait for.

        flow = app.workflow("invoice-42")
        page = flow.add(fetch.bind(1))
        flow.add(render.bind(page.result), after=[page])
        handle = await flow.enqueue()

    Its id is made here, so a repeated `enqueue` is the same workflow.
    """

    def __init__(self, enqueuer: Enqueuer, workflow: NewWorkflow) -> None:
        self._enqueuer = enqueuer
        self._workflow = workflow
        self._jobs: dict[JobId, NewJob[Any]] = {}
        self._is_enqueued = False

    @property
    def id(self) -> str:
        return self._workflow.id

    @overload
    def add(
        self, call: NewJob[R] | Part[R], *, after: Iterable[Parent] = (), if_parent_fails: ParentPolicy | None = None
    ) -> Node[R]: ...
    @overload
    def add(
        self, call: Group[R], *, after: Iterable[Parent] = (), if_parent_fails: ParentPolicy | None = None
    ) -> list[Node[R]]: ...
    def add(
        self,
        call: NewJob[Any] | Part[Any] | Group[Any],
        *,
        after: Iterable[Parent] = (),
        if_parent_fails: ParentPolicy | None = None,
    ) -> Node[Any] | list[Node[Any]]:
        """Add a call made by `task.bind(...)`, or a `chain`, `group`, `chord` or `task.map`. Returns its node (of a chain or
        chord that of its last call, of a group all), for `after=` and as an argument of others: `node.result`.

        A call waits for the jobs of `after` and for those whose results are its arguments; see `task.using` for
        `if_parent_fails`. Of a chain or chord that concerns the calls that begin it.

        Raises:
            InvalidArguments: this is no call, it is there already, if_parent_fails without parents, or the workflow is stored.
        """
        if self._is_enqueued:
            raise InvalidArguments(
                f"workflow {self._workflow.name!r} has been enqueued: a running job adds to it by current_job().add(...)"
            )
        parents = parse_parents(after)
        policy = None if if_parent_fails is None else parse_policy(if_parent_fails)
        jobs: tuple[NewJob[Any], ...]
        match call:
            case NewJob():
                jobs, waiting = (call,), {call.id}
            case Part():
                jobs, waiting = call.jobs, set(call.first)
            case Group():
                jobs, waiting = call.jobs, {job.id for job in call.jobs}
            case _:
                raise InvalidArguments(f"a workflow takes what task.bind(...) gives, not {short_repr(call)}", "call")
        for job in jobs:
            if job.id in self._jobs:
                raise InvalidArguments(f"this call of {job.task} is in the workflow already: bind another", "call")
        placed = [add_parents(job, parents, policy) if job.id in waiting else job for job in jobs]
        if policy is not None and not any(job.after for job in placed if job.id in waiting):
            raise InvalidArguments(POLICY_WITHOUT_PARENTS, "if_parent_fails")
        self._jobs |= {job.id: msgspec.structs.replace(job, workflow=self.id) for job in placed}
        if isinstance(call, Group):
            return [Node(job) for job in call.jobs]
        return Node(call.last if isinstance(call, Part) else call)

    def enqueue(self) -> Coroutine[Any, Any, WorkflowHandle]:
        """Store all of it, or nothing; on disk when this returns. A plain function, as `task.enqueue` is: what can be refused
        here raises where the call is written.

        Raises:
            InvalidArguments: jobs that wait for each other, results of a wrong type, more than 100,000 jobs.
            JobNotFound, JobExpired: a job of `after` is not in the store, or no longer.
            UniqueConflict: a live job holds the unique key of one of these.
            WorkflowError: one of its calls was stored before, by itself or in another workflow.
            WorkflowConflict: another workflow of this name is live, and this one is to be the only one (unique=True).
        """
        return awaited_on_loop(self._enqueue(self._check_jobs()), "flow.enqueue", "flow.enqueue_sync")

    def enqueue_sync(self) -> SyncWorkflowHandle:
        """As `enqueue`, for code without a loop."""
        check_no_loop("flow.enqueue_sync", "await flow.enqueue")
        return SyncWorkflowHandle.run("flow.enqueue_sync", self._enqueue(self._check_jobs()))

    async def _enqueue(self, jobs: list[NewJob[Any]]) -> WorkflowHandle:
        self._is_enqueued = True
        try:
            return await self._enqueuer.enqueue_workflow(self._workflow, jobs)
        except (InvalidArguments, JobNotFound, JobExpired, UniqueConflict, WorkflowError):
            self._is_enqueued = False  # nothing was stored; after another error it may be
            raise

    def _check_jobs(self) -> list[NewJob[Any]]:
        if not self._jobs:
            raise InvalidArguments(f"workflow {self._workflow.name!r} has no jobs: flow.add(task.bind(...)) first")
        return self._enqueuer.check_graph(self._jobs.values())[0]

    def __repr__(self) -> str:
        return f"<Flow {self._workflow.name} {self.id} of {len(self._jobs)} jobs>"


def build_workflow(name: str, labels: Mapping[str, str] | None, unique: bool) -> NewWorkflow:
    """
    Raises:
        InvalidArguments: the name or a label cannot be stored.
    """
    given: object = labels or {}
    if not isinstance(given, Mapping) or len(given) > MAX_LABELS:
        raise InvalidArguments(
            f"labels must be a dict of at most {MAX_LABELS} texts, not {short_repr(labels)}", "labels"
        )
    for key, value in given.items():
        if not isinstance(value, str) or len(value) > 200 or (value and not value.isprintable()):
            raise InvalidArguments(
                f"label {short_repr(key)} must be a printable text of at most 200 characters, not {short_repr(value)}",
                "labels",
            )
    if not isinstance(unique, bool):
        raise InvalidArguments(f"unique must be True or False, not {short_repr(unique)}", "unique")
    checked = {check_name("label", key): value for key, value in given.items()}
    return NewWorkflow(id=new_job_id(), name=check_key(name, kind="workflow name"), labels=checked, unique=unique)
