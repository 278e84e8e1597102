"""Background jobs on SQLite, PostgreSQL or Redis. What is named here is the public face; the rest may change."""

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.errors import DrumbeatError, JobError
from drumbeat.events import (
    Event,
    InstanceBuried,
    JobFailed,
    JobFinished,
    JobsDone,
    JobStarted,
    LeaseLost,
    LoopBlocked,
    ResultRefused,
    StoreDown,
    StoreUp,
    ThreadAbandoned,
)
from drumbeat.handle import JobHandle, SyncJobHandle
from drumbeat.model.job import Job, JobState
from drumbeat.retry import Backoff, RetryLater, SkipRetry, Snooze
from drumbeat.tasks import Call

__all__ = [
    "Backoff",
    "Call",
    "Drumbeat",
    "DrumbeatError",
    "Event",
    "InstanceBuried",
    "Job",
    "JobError",
    "JobFailed",
    "JobFinished",
    "JobHandle",
    "JobStarted",
    "JobState",
    "JobsDone",
    "LeaseLost",
    "LoopBlocked",
    "ResultRefused",
    "RetryLater",
    "SkipRetry",
    "Snooze",
    "StoreDown",
    "StoreUp",
    "SyncJobHandle",
    "ThreadAbandoned",
    "current_job",
]
