"""Background jobs on SQLite, PostgreSQL or Redis. The names here are the public API; everything else may change."""

from drumbeat.admin import FireInfo, Run, ScheduleInfo
from drumbeat.app import Drumbeat
from drumbeat.codec import JobOutcome, Results
from drumbeat.context import AbortReason, RunningJob, abort_signal, current_job
from drumbeat.core.instance import Instance
from drumbeat.core.job import Attempt, CancelAnswer, Cancelled, Job, JobState, NewJob
from drumbeat.core.job_query import QueueInfo, QueueStats, TaskStats
from drumbeat.core.lock import LockInfo, TicketInfo
from drumbeat.core.signals import SignalRecord
from drumbeat.core.stats import Rollup
from drumbeat.core.step import StepRecord
from drumbeat.core.workflow import Workflow
from drumbeat.errors import DrumbeatError, JobError
from drumbeat.events import (
    AttemptFailed,
    Event,
    InstanceDied,
    JobFinished,
    JobsDone,
    JobStarted,
    LeaderChanged,
    LeaseLost,
    LoopBlocked,
    ResultRefused,
    RoomFailed,
    ScheduleFired,
    ScheduleRestored,
    ScheduleSkipped,
    StoreDown,
    StoreEmptied,
    StoreHasSpace,
    StoreOutOfSpace,
    StoreUp,
    ThreadAbandoned,
)
from drumbeat.flow import Flow
from drumbeat.flow_parts import Group, Node, Part, chain, chord, group
from drumbeat.handle import JobHandle, SyncJobHandle
from drumbeat.locks import HeldLock, local_lock
from drumbeat.retry import Backoff, RetryLater, SkipRetry, Snooze
from drumbeat.step_calls import Suspended, current_step
from drumbeat.tasks import Call, Limit
from drumbeat.workflow_handle import SyncWorkflowHandle, WorkflowHandle

__all__ = [
    "AbortReason",
    "Attempt",
    "AttemptFailed",
    "Backoff",
    "Call",
    "CancelAnswer",
    "Cancelled",
    "Drumbeat",
    "DrumbeatError",
    "Event",
    "FireInfo",
    "Flow",
    "Group",
    "HeldLock",
    "Instance",
    "InstanceDied",
    "Job",
    "JobError",
    "JobFinished",
    "JobHandle",
    "JobOutcome",
    "JobStarted",
    "JobState",
    "JobsDone",
    "LeaderChanged",
    "LeaseLost",
    "Limit",
    "LockInfo",
    "LoopBlocked",
    "NewJob",
    "Node",
    "Part",
    "QueueInfo",
    "QueueStats",
    "ResultRefused",
    "Results",
    "RetryLater",
    "Rollup",
    "RoomFailed",
    "Run",
    "RunningJob",
    "ScheduleFired",
    "ScheduleInfo",
    "ScheduleRestored",
    "ScheduleSkipped",
    "SignalRecord",
    "SkipRetry",
    "Snooze",
    "StepRecord",
    "StoreDown",
    "StoreEmptied",
    "StoreHasSpace",
    "StoreOutOfSpace",
    "StoreUp",
    "Suspended",
    "SyncJobHandle",
    "SyncWorkflowHandle",
    "TaskStats",
    "ThreadAbandoned",
    "TicketInfo",
    "Workflow",
    "WorkflowHandle",
    "abort_signal",
    "chain",
    "chord",
    "current_job",
    "current_step",
    "group",
    "local_lock",
]


def __getattr__(name: str) -> str:
    if name == "__version__":  # looked up late: it reads a file
        from importlib.metadata import version

        return version("drumbeat")
    raise AttributeError(f"module 'drumbeat' has no attribute {name!r}")
