"""What a worker and a child process that runs its jobs say to each other. One frame is one message.

worker                      child
   | <------- Ready --------- |    or Refused: it cannot serve
   | -------- Run ----------> |
   | <------- Began --------- |    or Refused: not a job for it; without either it died before the job could have done it
   | -------- Abort --------> |    the worker drains
   | <------- Noted --------- |    progress, any number
   | <------- Ended --------- |    if its time is limited: when the handler ended, before anything that may take long to say
   | <------- Done ---------- |    and the next Run
   | -------- Stop ---------> |    when idle: leave
"""

import msgspec

from drumbeat.context import AbortReason
from drumbeat.core.claim import ClaimedJob
from drumbeat.ids import InstanceId
from drumbeat.worker.result import HandlerResult


class RunJob(msgspec.Struct, frozen=True, tag=True):
    job: ClaimedJob
    instance: InstanceId
    """Under which the job is claimed: a completion names it."""
    started_us: int
    trace: str | None = None
    """The span of this run, as a W3C traceparent."""


class AbortJob(msgspec.Struct, frozen=True, tag=True):
    reason: AbortReason


class StopChild(msgspec.Struct, frozen=True, tag=True):
    pass


class ChildReady(msgspec.Struct, frozen=True, tag=True):
    pass


class ChildRefused(msgspec.Struct, frozen=True, tag=True):
    """The program's fault, not a job's."""

    reason: str
    traceback: str = ""


class HandlerStarted(msgspec.Struct, frozen=True, tag=True):
    pass


class ProgressReported(msgspec.Struct, frozen=True, tag=True):
    progress: str
    """JSON text."""


class HandlerEnded(msgspec.Struct, frozen=True, tag=True):
    took: float
    """Seconds, as measured where the handler ran."""


class JobResult(msgspec.Struct, frozen=True, tag=True):
    result: HandlerResult


MessageToChild = RunJob | AbortJob | StopChild
MessageToWorker = ChildReady | ChildRefused | HandlerStarted | ProgressReported | HandlerEnded | JobResult

encode = msgspec.msgpack.Encoder().encode
child_decoder = msgspec.msgpack.Decoder[MessageToChild](MessageToChild)
worker_decoder = msgspec.msgpack.Decoder[MessageToWorker](MessageToWorker)
