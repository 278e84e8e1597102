"""Messages between a worker and a child process that runs its jobs. One frame is one message.

worker                           child
   | <------- ChildReady --------- |    or ChildRefused: it cannot serve
   | -------- RunJob ------------> |
   | <------- HandlerStarted ----- |    or ChildRefused: not a job for it. With neither, it died before the job was to blame
   | -------- AbortJob ----------> |    the worker drains
   | <------- ProgressReported --- |    any number
   | <------- StepsAsked --------- |    any number, each answered by StepsAnswered: the worker reaches the store
   | <------- HandlerEnded ------- |    if the job has a timeout: sent before a result that may take long to send
   | <------- JobResult ---------- |    the next RunJob may follow
   | -------- StopChild ---------> |    when idle: exit
"""

from typing import Any

import msgspec

from drumbeat import errors
from drumbeat.context import AbortReason
from drumbeat.core.claim import ClaimedJob
from drumbeat.core.dependencies import GraphAnswer, NewGraph, ParentResult
from drumbeat.core.signals import SignalWait, TakenSignal
from drumbeat.core.step import NewStep, StepRecord
from drumbeat.errors import DrumbeatError
from drumbeat.ids import InstanceId, JobId
from drumbeat.worker.result import HandlerResult


class RunJob(msgspec.Struct, frozen=True, tag=True):
    job: ClaimedJob
    instance: InstanceId
    """The instance that claimed the job: a completion names it."""
    started_us: int
    trace: str | None = None
    """The span of this run, as a W3C traceparent."""
    bound_args: str | None = None
    """Its arguments with results of its parents, instead of job.args."""


class AbortJob(msgspec.Struct, frozen=True, tag=True):
    reason: AbortReason


class Refusal(msgspec.Struct, frozen=True):
    """A `DrumbeatError` by the name of its class and its facts."""

    name: str
    message: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, error: DrumbeatError) -> "Refusal":
        return cls(type(error).__name__, str(error), vars(error))

    def to_error(self) -> DrumbeatError:
        return errors.rebuild(getattr(errors, self.name), (self.message,), self.facts)


class AskedPage(msgspec.Struct, frozen=True):
    """Of the results that a job gets as one argument."""

    job: JobId
    argument: str
    after: int
    limit: int


class StepsAnswered(msgspec.Struct, frozen=True, tag=True):
    number: int
    steps: list[StepRecord] = []
    is_recorded: bool = False
    taken: TakenSignal | None = None
    page: list[ParentResult] = []
    added: GraphAnswer | None = None
    error: str | None = None
    """The store refused it."""
    refusal: Refusal | None = None
    """The store refused it with an error that the handler is to see."""


class StopChild(msgspec.Struct, frozen=True, tag=True):
    pass


class ChildReady(msgspec.Struct, frozen=True, tag=True):
    pass


class ChildRefused(msgspec.Struct, frozen=True, tag=True):
    """A problem of the program, not of a job."""

    reason: str
    traceback: str = ""


class HandlerStarted(msgspec.Struct, frozen=True, tag=True):
    pass


class ProgressReported(msgspec.Struct, frozen=True, tag=True):
    progress: str
    """JSON text."""


class StepsAsked(msgspec.Struct, frozen=True, tag=True):
    number: int
    record: NewStep | None = None
    take: SignalWait | None = None
    page: AskedPage | None = None
    graph: NewGraph | None = None
    """With none of these: load the steps of the running job."""


class HandlerEnded(msgspec.Struct, frozen=True, tag=True):
    took: float
    """Seconds, as measured where the handler ran."""


class JobResult(msgspec.Struct, frozen=True, tag=True):
    result: HandlerResult


MessageToChild = RunJob | AbortJob | StepsAnswered | StopChild
MessageToWorker = ChildReady | ChildRefused | HandlerStarted | ProgressReported | StepsAsked | HandlerEnded | JobResult

encode = msgspec.msgpack.Encoder().encode
child_decoder = msgspec.msgpack.Decoder[MessageToChild](MessageToChild)
worker_decoder = msgspec.msgpack.Decoder[MessageToWorker](MessageToWorker)
