"""The rows of the API in the table of routes: address, handler, least role, records in and out; of a write the audit's word."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from drumbeat.model.audit import Act
from drumbeat.model.death import DeadGroup
from drumbeat.model.job import Attempt, JobCounts
from drumbeat.model.lock import LockInfo
from drumbeat.nouns import FireInfo, Run, TaskInfo
from drumbeat.nouns.explaining import Explanation
from drumbeat.web.api import audit, dead, instances, jobs, locks, queues, schedules, stats, status, system, tasks
from drumbeat.web.api.acting import BulkRecord
from drumbeat.web.api.filters import Counted, Listed
from drumbeat.web.api.records import Done, JobRecord, Page, Why
from drumbeat.web.call import API, Handler, Nothing, Role, Route

OPERATOR, ADMIN = Role.OPERATOR, Role.ADMIN
Struct = type[msgspec.Struct]


def _get(path: str, handler: Handler, answer: Any, summary: str, query: Struct = Nothing) -> Route:
    return Route(
        method="GET",
        path=API + path,
        handler=handler,
        role=Role.VIEWER,
        summary=summary,
        query=query,
        answer=answer,
    )


def _write(
    address: str,
    handler: Handler,
    answer: Any,
    summary: str,
    *,
    role: Role,
    verb: str,
    body: Struct | None = Why,
    query: Struct = Nothing,
    also: tuple[int, ...] = (),
) -> Route:
    """`address` is the method and the path."""
    method: Literal["POST", "PUT", "DELETE"]
    method, path = address.split(" ")  # type: ignore[assignment]
    return Route(
        method=method,
        path=API + path,
        handler=handler,
        role=role,
        summary=summary,
        query=query,
        body=body,
        answer=answer,
        verb=verb,
        also=also,
    )


_STATUS = (
    _get("/status", status.show, status.StatusNow, "The whole cluster in one record"),
    _get("/stats", stats.read, stats.StatsRecord, "Counts and latencies, stretch by stretch", stats.StatsQuery),
    _get("/system", system.show, system.SystemRecord, "The store, the settings, and what is wrong with them"),
    _get("/audit", audit.list_, Page[Act], "Who did what, newest first", audit.AuditQuery),
    _write(
        "POST /audit/{id}/stop",
        audit.stop,
        Done,
        "Stop an act on many jobs that goes on in the background",
        role=ADMIN,
        verb="audit.stop",
    ),
)

_JOBS = (
    _get("/jobs", jobs.list_, Page[JobRecord], "Jobs, newest first", Listed),
    _get("/jobs/counts", jobs.counts, JobCounts, "How many jobs are in which state", Counted),
    _get("/jobs/{id}", jobs.show, JobRecord, "One job"),
    _get("/jobs/{id}/attempts", jobs.attempts, Page[Attempt], "All runs of a job that have ended, oldest first"),
    _get("/jobs/{id}/explain", jobs.explain, Explanation, "Why is it not running?"),
    _write(
        "POST /jobs",
        jobs.enqueue,
        jobs.Enqueued,
        "Queue a call of a task",
        role=OPERATOR,
        verb="jobs.enqueue",
        body=jobs.NewCall,
    ),
    _write(
        "POST /jobs/bulk",
        jobs.bulk,
        BulkRecord,
        "Cancel, run now, replay or discard many jobs",
        role=ADMIN,
        verb="jobs.bulk",
        body=jobs.BulkBody,
        also=(202,),
    ),
    _write(
        "POST /jobs/{id}/cancel",
        jobs.cancel,
        jobs.CancelRecord,
        "Keep a job from running, or ask it to stop",
        role=OPERATOR,
        verb="jobs.cancel",
    ),
    _write(
        "POST /jobs/{id}/retry",
        jobs.retry,
        JobRecord,
        "A dead letter gets a new life, a pending job is due now",
        role=OPERATOR,
        verb="jobs.retry",
    ),
    _write(
        "POST /jobs/{id}/run-now",
        jobs.run_now,
        JobRecord,
        "Make a pending job due now",
        role=OPERATOR,
        verb="jobs.run_now",
    ),
)

_DEAD = (
    _get("/dead", dead.list_, Page[JobRecord], "Dead letters, newest first", dead.DeadListed),
    _get("/dead/groups", dead.groups, Page[DeadGroup], "Dead letters by task and error", dead.GroupsQuery),
    _get("/dead/{id}", dead.show, JobRecord, "One dead letter"),
    _write(
        "POST /dead/replay",
        dead.replay_many,
        BulkRecord,
        "Give many dead letters a new life",
        role=ADMIN,
        verb="dead.replay",
        body=dead.ReplayBody,
        also=(202,),
    ),
    _write(
        "POST /dead/discard",
        dead.discard_many,
        BulkRecord,
        "Let many dead letters go",
        role=ADMIN,
        verb="dead.discard",
        body=dead.DiscardBody,
        also=(202,),
    ),
    _write(
        "POST /dead/{id}/replay",
        dead.replay,
        JobRecord,
        "Give a dead letter a new life",
        role=OPERATOR,
        verb="dead.replay",
    ),
    _write(
        "POST /dead/{id}/discard",
        dead.discard,
        JobRecord,
        "Let a dead letter go",
        role=ADMIN,
        verb="dead.discard",
    ),
)

_QUEUES = (
    _get("/queues", queues.list_queues, queues.QueueList, "All queues"),
    _get("/queues/{name}", queues.show, queues.QueueShown, "One queue"),
    _write(
        "POST /queues/{name}/pause",
        queues.pause,
        Done,
        "Let no worker take a job of this queue",
        role=OPERATOR,
        verb="queues.pause",
    ),
    _write("POST /queues/{name}/resume", queues.resume, Done, "Undo a pause", role=OPERATOR, verb="queues.resume"),
)

_TASKS = (
    _get("/tasks", tasks.list_, Page[TaskInfo], "All tasks"),
    _get("/tasks/{name}", tasks.show, TaskInfo, "One task, with what it takes"),
    _get("/tasks/{name}/history", tasks.history, Page[Run], "Its runs, newest job first", tasks.HistoryQuery),
)

_SCHEDULES = (
    _get("/schedules", schedules.list_, Page[schedules.ScheduleRecord], "Schedules, by name", schedules.SchedulesQuery),
    _get(
        "/schedules/preview",
        schedules.preview,
        schedules.Preview,
        "The next moments of a rule",
        schedules.PreviewQuery,
    ),
    _get("/schedules/{name}", schedules.show, schedules.ScheduleRecord, "One schedule"),
    _get(
        "/schedules/{name}/fires",
        schedules.fires,
        Page[FireInfo],
        "What became of its moments, newest first",
        schedules.FiresQuery,
    ),
    _write(
        "POST /schedules",
        schedules.create,
        schedules.ScheduleRecord,
        "Make a schedule",
        role=ADMIN,
        verb="schedules.create",
        body=schedules.NewScheduleBody,
    ),
    _write(
        "PUT /schedules/{name}",
        schedules.change,
        schedules.ScheduleRecord,
        "Change what is given of a schedule that was made at run time",
        role=ADMIN,
        verb="schedules.change",
        body=schedules.Words,
    ),
    _write(
        "DELETE /schedules/{name}",
        schedules.delete,
        Done,
        "Retire a schedule",
        role=ADMIN,
        verb="schedules.delete",
        body=None,
        query=schedules.WhyQuery,
    ),
    _write(
        "POST /schedules/{name}/pause",
        schedules.pause,
        Done,
        "Fire nothing of it from now on",
        role=OPERATOR,
        verb="schedules.pause",
    ),
    _write(
        "POST /schedules/{name}/resume",
        schedules.resume,
        Done,
        "Go on with it",
        role=OPERATOR,
        verb="schedules.resume",
    ),
    _write(
        "POST /schedules/{name}/run-now",
        schedules.run_now,
        jobs.Enqueued,
        "Enqueue its job at once",
        role=OPERATOR,
        verb="schedules.run_now",
    ),
)

_CLUSTER = (
    _get(
        "/instances",
        instances.list_,
        Page[instances.InstanceRecord],
        "The processes of the cluster",
        instances.InstancesQuery,
    ),
    _get("/instances/{id}", instances.show, instances.InstanceRecord, "One process"),
    _get("/locks", locks.list_, Page[LockInfo], "Locks, by name, with their holders", locks.LocksQuery),
    _get("/locks/{name}", locks.show, LockInfo, "One lock with its line"),
    _write(
        "POST /locks/{name}/release",
        locks.release,
        Done,
        "Take a lock away from who holds it",
        role=ADMIN,
        verb="locks.release",
        body=locks.ReleaseBody,
    ),
)

NOUNS: tuple[Route, ...] = (*_STATUS, *_JOBS, *_DEAD, *_QUEUES, *_TASKS, *_SCHEDULES, *_CLUSTER)
"""Everything under /api/v1 but the event stream and the description of the API itself."""
