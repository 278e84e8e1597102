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
from drumbeat.ids import InstanceId
from drumbeat.model.job import Claimed
from drumbeat.worker.ending import Ending


class Run(msgspec.Struct, frozen=True, tag=True):
    job: Claimed
    instance: InstanceId
    """Under which the job is claimed: a completion names it."""
    started_us: int
    trace: str | None = None
    """The span of this run, as a W3C traceparent."""


class Abort(msgspec.Struct, frozen=True, tag=True):
    reason: AbortReason


class Stop(msgspec.Struct, frozen=True, tag=True):
    pass


class Ready(msgspec.Struct, frozen=True, tag=True):
    pass


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The program's fault, not a job's."""

    problem: str
    traceback: str = ""


class Began(msgspec.Struct, frozen=True, tag=True):
    pass


class Noted(msgspec.Struct, frozen=True, tag=True):
    progress: str
    """JSON text."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    took: float
    """Seconds, as measured where the handler ran."""


class Done(msgspec.Struct, frozen=True, tag=True):
    ending: Ending


ToChild = Run | Abort | Stop
ToWorker = Ready | Refused | Began | Noted | Ended | Done

encode = msgspec.msgpack.Encoder().encode
to_child = msgspec.msgpack.Decoder[ToChild](ToChild)
to_worker = msgspec.msgpack.Decoder[ToWorker](ToWorker)
