"""Jobs that a running job adds by a step: their graph, whose record are their ids, and their handles."""

from collections.abc import Iterable
from typing import Any

from drumbeat.codec import decode_result, encode_result
from drumbeat.core.claim import ClaimRef, WriteStatus
from drumbeat.core.dependencies import GraphAnswer, NewGraph
from drumbeat.core.job import NewJob
from drumbeat.core.step import NewStep
from drumbeat.errors import StepError
from drumbeat.handle import JobHandle
from drumbeat.ids import JobId
from drumbeat.protocols import Enqueuer

MAX_ADDED = 5_000
"""Jobs that one step adds: its record, their ids, must be within core.step.MAX_RESULT_BYTES."""


def build_graph(enqueuer: Enqueuer, claim: ClaimRef, name: str, calls: Iterable[NewJob[Any]], now: int) -> NewGraph:
    """
    Raises:
        InvalidArguments: as when jobs are enqueued.
        StepError: there are too many.
    """
    jobs, edges = enqueuer.check_graph(calls)
    if len(jobs) > MAX_ADDED:
        problem = f"adds {len(jobs):,} jobs: one step adds at most {MAX_ADDED:,}, use several"
        raise StepError(claim.id, name, problem)
    result = encode_result([job.id for job in jobs])
    step = NewStep(claim=claim, name=name, started_at=now, finished_at=now, result=result)
    return NewGraph(jobs=jobs, edges=edges, step=step)


def handles_of(enqueuer: Enqueuer, answer: GraphAnswer) -> list[JobHandle[Any]]:
    if answer.status is WriteStatus.DUPLICATE:  # it is on record: the answer of an earlier call was lost
        return handles_of_ids(enqueuer, decode_result(answer.recorded or "[]", list[str]))
    return [JobHandle(enqueuer, added.id, added.created) for added in answer.results]


def handles_of_ids(enqueuer: Enqueuer, ids: Iterable[str]) -> list[JobHandle[Any]]:
    """Of jobs that an earlier run has added."""
    return [JobHandle(enqueuer, JobId(id), False) for id in ids]
