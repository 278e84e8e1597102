"""The API's rows of the route table: path, handler, role, records, and of writes the audit verb."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from drumbeat.admin import FireInfo, Run, TaskInfo
from drumbeat.admin.explain.reasons import Explanation
from drumbeat.core.audit import AuditEntry
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.job import Attempt
from drumbeat.core.job_query import JobCounts
from drumbeat.core.lock import LockInfo
from drumbeat.web.api import audit, dead, instances, jobs, locks, queues, schedules, stats, status, system, tasks
from drumbeat.web.api.bulk_action import BulkRecord
from drumbeat.web.api.job_filters import JobCountsQuery, JobListQuery
from drumbeat.web.api.records import JobRecord, Page, ReasonBody, WriteResult
from drumbeat.web.route import API_PREFIX, AccessRole, Handler, NoParameters, Route

OPERATOR, ADMIN = AccessRole.OPERATOR, AccessRole.ADMIN
Struct = type[msgspec.Struct]


def _get(path: str, handler: Handler, answer: Any, summary: str, query: Struct = NoParameters) -> Route:
    return Route(
        method="GET",
        path=API_PREFIX + path,
        handler=handler,
        role=AccessRole.VIEWER,
        summary=summary,
        query=query,
        response=answer,
    )


def _write(
    address: str,
    handler: Handler,
    answer: Any,
    summary: str,
    *,
    role: AccessRole,
    verb: str,
    body: Struct | None = ReasonBody,
    query: Struct = NoParameters,
    also: tuple[int, ...] = (),
) -> Route:
    """`address` is the method and the path."""
    method: Literal["POST", "PUT", "DELETE"]
    method, path = address.split(" ")  # type: ignore[assignment]
    return Route(
        method=method,
        path=API_PREFIX + path,
        handler=handler,
        role=role,
        summary=summary,
        query=query,
        body=body,
        response=answer,
        verb=verb,
        other_statuses=also,
    )


_STATUS = (
    _get("/status", status.show, status.ClusterStatus, "The whole cluster in one record"),
    _get("/stats", stats.read_stats, stats.StatsRecord, "Counts and latencies by interval", stats.StatsQuery),
    _get("/system", system.show, system.SystemRecord, "The store, the settings, and what is wrong with them"),
    _get("/audit", audit.list_acts, Page[AuditEntry], "Who did what, newest first", audit.AuditQuery),
    _write(
        "POST /audit/{id}/stop",
        audit.stop_act,
        WriteResult,
        "Stop a background act on many jobs",
        role=ADMIN,
        verb="audit.stop",
    ),
)

_JOBS = (
    _get("/jobs", jobs.list_jobs, Page[JobRecord], "Jobs, newest first", JobListQuery),
    _get("/jobs/counts", jobs.count_jobs, JobCounts, "How many jobs are in which state", JobCountsQuery),
    _get("/jobs/{id}", jobs.show, JobRecord, "One job"),
    _get("/jobs/{id}/attempts", jobs.list_attempts, Page[Attempt], "All runs of a job that have ended, oldest first"),
    _get("/jobs/{id}/explain", jobs.explain, Explanation, "Why is it not running?"),
    _write(
        "POST /jobs",
        jobs.enqueue,
        jobs.EnqueueResult,
        "Queue a call of a task",
        role=OPERATOR,
        verb="jobs.enqueue",
        body=jobs.EnqueueBody,
    ),
    _write(
        "POST /jobs/bulk",
        jobs.act_on_many,
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
        "Cancel a job, or ask a running one to stop",
        role=OPERATOR,
        verb="jobs.cancel",
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
    _get("/dead", dead.list_dead_letters, Page[JobRecord], "Dead letters, newest first", dead.DeadLettersQuery),
    _get(
        "/dead/groups", dead.list_groups, Page[DeadLetterGroup], "Dead letters by task and error", dead.DeadGroupsQuery
    ),
    _get("/dead/{id}", dead.show, JobRecord, "One dead letter"),
    _write(
        "POST /dead/replay",
        dead.replay_many,
        BulkRecord,
        "Replay many dead letters",
        role=ADMIN,
        verb="dead.replay",
        body=dead.ReplayBody,
        also=(202,),
    ),
    _write(
        "POST /dead/discard",
        dead.discard_many,
        BulkRecord,
        "Discard many dead letters",
        role=ADMIN,
        verb="dead.discard",
        body=dead.DiscardBody,
        also=(202,),
    ),
    _write(
        "POST /dead/{id}/replay",
        dead.replay,
        BulkRecord,
        "Replay a dead letter",
        role=OPERATOR,
        verb="dead.replay",
    ),
    _write(
        "POST /dead/{id}/discard",
        dead.discard,
        BulkRecord,
        "Discard a dead letter",
        role=ADMIN,
        verb="dead.discard",
    ),
)

_QUEUES = (
    _get("/queues", queues.list_queues, Page[queues.QueueRecord], "All queues"),
    _get("/queues/{name}", queues.show, queues.QueueRecord, "One queue"),
    _write(
        "POST /queues/{name}/pause",
        queues.pause,
        WriteResult,
        "Pause a queue",
        role=OPERATOR,
        verb="queues.pause",
    ),
    _write(
        "POST /queues/{name}/resume", queues.resume, WriteResult, "Resume a queue", role=OPERATOR, verb="queues.resume"
    ),
)

_TASKS = (
    _get("/tasks", tasks.list_tasks, Page[TaskInfo], "All tasks"),
    _get("/tasks/{name}", tasks.show, TaskInfo, "One task with its parameters"),
    _get("/tasks/{name}/history", tasks.history, Page[Run], "Its runs, newest job first", tasks.TaskHistoryQuery),
)

_SCHEDULES = (
    _get(
        "/schedules",
        schedules.list_schedules,
        Page[schedules.ScheduleRecord],
        "Schedules, by name",
        schedules.SchedulesQuery,
    ),
    _get(
        "/schedules/preview",
        schedules.preview,
        schedules.Preview,
        "The next fire times of a rule",
        schedules.PreviewQuery,
    ),
    _get("/schedules/{name}", schedules.show, schedules.ScheduleRecord, "One schedule"),
    _get(
        "/schedules/{name}/fires",
        schedules.list_fires,
        Page[FireInfo],
        "Fires of a schedule, newest first",
        schedules.FiresQuery,
    ),
    _write(
        "POST /schedules",
        schedules.create,
        schedules.ScheduleRecord,
        "Create a schedule",
        role=ADMIN,
        verb="schedules.create",
        body=schedules.NewScheduleBody,
    ),
    _write(
        "PUT /schedules/{name}",
        schedules.change,
        schedules.ScheduleRecord,
        "Change the given fields of a schedule that was created at run time",
        role=ADMIN,
        verb="schedules.change",
        body=schedules.ScheduleFieldsBody,
    ),
    _write(
        "DELETE /schedules/{name}",
        schedules.delete,
        WriteResult,
        "Retire a schedule",
        role=ADMIN,
        verb="schedules.delete",
        body=None,
        query=schedules.ReasonQuery,
    ),
    _write(
        "POST /schedules/{name}/pause",
        schedules.pause,
        WriteResult,
        "Pause a schedule",
        role=OPERATOR,
        verb="schedules.pause",
    ),
    _write(
        "POST /schedules/{name}/resume",
        schedules.resume,
        WriteResult,
        "Resume a schedule",
        role=OPERATOR,
        verb="schedules.resume",
    ),
    _write(
        "POST /schedules/{name}/run-now",
        schedules.run_now,
        jobs.EnqueueResult,
        "Enqueue one extra run of a schedule",
        role=OPERATOR,
        verb="schedules.run_now",
    ),
)

_CLUSTER = (
    _get(
        "/instances",
        instances.list_instances,
        Page[instances.InstanceRecord],
        "Instances",
        instances.InstancesQuery,
    ),
    _get("/instances/{id}", instances.show, instances.InstanceRecord, "One process"),
    _get("/locks", locks.list_locks, Page[LockInfo], "Locks, by name, with their holders", locks.LocksQuery),
    _get("/locks/{name}", locks.show, LockInfo, "One lock with its waiters"),
    _write(
        "POST /locks/{name}/release",
        locks.force_release,
        WriteResult,
        "Force-release a lock",
        role=ADMIN,
        verb="locks.release",
        body=locks.ReleaseBody,
    ),
)

API_ROUTES: tuple[Route, ...] = (*_STATUS, *_JOBS, *_DEAD, *_QUEUES, *_TASKS, *_SCHEDULES, *_CLUSTER)
"""Everything under /api/v1 except the event stream and the OpenAPI document."""
