"""The API's rows of the route table: path, handler, summary, and of writes the role and the audit verb."""

from __future__ import annotations

from drumbeat.web.api import (
    audit,
    dead,
    instances,
    job_steps,
    jobs,
    limits,
    locks,
    queues,
    schedules,
    stats,
    status,
    system,
    tasks,
    workflows,
)
from drumbeat.web.route import API_PREFIX, AccessRole, Handler, Route, make_route

OPERATOR, ADMIN = AccessRole.OPERATOR, AccessRole.ADMIN


def _get(path: str, handler: Handler, summary: str) -> Route:
    return make_route(f"GET {API_PREFIX}{path}", handler, summary)


def _write(address: str, handler: Handler, role: AccessRole, verb: str, summary: str) -> Route:
    """`address` is the method and the path."""
    return make_route(address.replace(" ", f" {API_PREFIX}"), handler, summary, role, verb)


API_ROUTES: tuple[Route, ...] = (
    _get("/status", status.show, "The whole cluster in one record"),
    _get("/stats", stats.read_stats, "Counts and latencies by interval"),
    _get("/stats/weeks", stats.read_weeks, "Each task in the last 7 days beside the 7 days before"),
    _get("/system", system.show, "The store, the settings, and what is wrong with them"),
    _get("/audit", audit.list_acts, "Who did what, newest first"),
    _write("POST /audit/{id}/stop", audit.stop_act, ADMIN, "audit.stop", "Stop a background act on many jobs"),
    _get("/jobs", jobs.list_jobs, "Jobs, newest first"),
    _get("/jobs/counts", jobs.count_jobs, "How many jobs are in which state"),
    _get("/jobs/{id}", jobs.show_detail, "One job, with its parents and children"),
    _get("/jobs/{id}/attempts", jobs.list_attempts, "All runs of a job that have ended, oldest first"),
    _get("/jobs/{id}/steps", job_steps.list_steps, "Its steps, sleeps, waits and signals"),
    _get("/jobs/{id}/lineage", jobs.show_lineage, "Which job enqueued it, and which jobs it enqueued"),
    _get("/jobs/{id}/explain", jobs.explain, "Why is it not running?"),
    _write("POST /jobs", jobs.enqueue, OPERATOR, "jobs.enqueue", "Queue a call of a task"),
    _write("POST /jobs/bulk", jobs.act_on_many, ADMIN, "jobs.bulk", "Cancel, run now, replay or discard many jobs"),
    _write(
        "POST /jobs/{id}/cancel", jobs.cancel, OPERATOR, "jobs.cancel", "Cancel a job, or ask a running one to stop"
    ),
    _write("POST /jobs/{id}/signal", job_steps.send_signal, OPERATOR, "jobs.signal", "Send a signal to a job"),
    _write("POST /jobs/{id}/run-now", jobs.run_now, OPERATOR, "jobs.run_now", "Make a pending job due now"),
    _get("/dead", dead.list_dead_letters, "Dead letters, newest first"),
    _get("/dead/groups", dead.list_groups, "Dead letters by task and error"),
    _get("/dead/{id}", dead.show, "One dead letter"),
    _write("POST /dead/replay", dead.replay_many, ADMIN, "dead.replay", "Replay many dead letters"),
    _write("POST /dead/discard", dead.discard_many, ADMIN, "dead.discard", "Discard many dead letters"),
    _write("POST /dead/{id}/replay", dead.replay, OPERATOR, "dead.replay", "Replay a dead letter"),
    _write("POST /dead/{id}/discard", dead.discard, ADMIN, "dead.discard", "Discard a dead letter"),
    _get("/workflows", workflows.list_workflows, "Workflows, newest first"),
    _get("/workflows/{id}", workflows.show, "One workflow with the counts of its jobs"),
    _get("/workflows/{id}/graph", workflows.show_graph, "Its jobs and what they wait for; of a large one by task"),
    _write(
        "POST /workflows/{id}/cancel", workflows.cancel, ADMIN, "workflows.cancel", "Cancel what is left of a workflow"
    ),
    _write("POST /workflows/{id}/replay", workflows.replay, ADMIN, "workflows.replay", "Replay its dead letters"),
    _get("/queues", queues.list_queues, "All queues"),
    _get("/queues/{name}", queues.show, "One queue"),
    _write("POST /queues/{name}/pause", queues.pause, OPERATOR, "queues.pause", "Pause a queue"),
    _write("POST /queues/{name}/resume", queues.resume, OPERATOR, "queues.resume", "Resume a queue"),
    _get("/tasks", tasks.list_tasks, "All tasks"),
    _get("/tasks/{name}", tasks.show, "One task with its parameters"),
    _get("/tasks/{name}/history", tasks.history, "Its runs, newest job first"),
    _get("/schedules", schedules.list_schedules, "Schedules, by name"),
    _get("/schedules/preview", schedules.preview, "The next fire times of a rule"),
    _get("/schedules/{name}", schedules.show, "One schedule"),
    _get("/schedules/{name}/fires", schedules.list_fires, "Fires of a schedule, newest first"),
    _write("POST /schedules", schedules.create, ADMIN, "schedules.create", "Create a schedule"),
    _write(
        "PUT /schedules/{name}",
        schedules.change,
        ADMIN,
        "schedules.change",
        "Change the given fields of a schedule that was created at run time",
    ),
    _write("DELETE /schedules/{name}", schedules.delete, ADMIN, "schedules.delete", "Retire a schedule"),
    _write("POST /schedules/{name}/pause", schedules.pause, OPERATOR, "schedules.pause", "Pause a schedule"),
    _write("POST /schedules/{name}/resume", schedules.resume, OPERATOR, "schedules.resume", "Resume a schedule"),
    _write(
        "POST /schedules/{name}/run-now",
        schedules.run_now,
        OPERATOR,
        "schedules.run_now",
        "Enqueue one extra run of a schedule",
    ),
    _get("/instances", instances.list_instances, "Instances"),
    _get("/instances/{id}", instances.show, "One process"),
    _get("/limits", limits.list_lines, "Limits of queues and tasks, by name"),
    _write("PUT /limits", limits.change, OPERATOR, "limits.set", "Change limits until they are reset"),
    _write("POST /limits/reset", limits.reset, OPERATOR, "limits.reset", "Let what code declares hold again"),
    _get("/groups", limits.list_groups, "Groups under limits: who waits, who runs, and since when"),
    _write(
        "PUT /groups", limits.change_group, OPERATOR, "limits.set_group", "Give a group limits of its own, or a weight"
    ),
    _write(
        "POST /groups/reset", limits.reset_group, OPERATOR, "limits.reset_group", "Make a group like the others again"
    ),
    _get("/locks", locks.list_locks, "Locks, by name, with their holders"),
    _get("/locks/{name}", locks.show, "One lock with its waiters"),
    _write("POST /locks/{name}/release", locks.force_release, ADMIN, "locks.release", "Force-release a lock"),
)
"""Everything under /api/v1 except the event stream and the OpenAPI document."""
