"""Routes of the pages, all for viewers. Pages call the handlers of the API in process."""

from __future__ import annotations

from drumbeat.web.route import Route, make_route

from . import (
    audit,
    dead,
    instances,
    job,
    job_export,
    jobs,
    limits,
    locks,
    overview,
    queues,
    schedule_form,
    schedules,
    system,
    tasks,
    timeline,
    workflows,
)

PAGES: tuple[Route, ...] = (
    make_route("GET /", overview.show, "Page: the overview"),
    make_route("GET /jobs", jobs.show_list, "Page: search of jobs"),
    make_route("GET /jobs/export", job_export.export, "All jobs that match, as JSON lines"),
    make_route("GET /jobs/{id}", job.show, "Page: one job"),
    make_route("GET /dead", dead.show, "Page: dead letters"),
    make_route("GET /workflows", workflows.index, "Page: workflows"),
    make_route("GET /workflows/{id}", workflows.show, "Page: one workflow with its graph"),
    make_route("GET /queues", queues.show_all, "Page: all queues"),
    make_route("GET /queues/{name}", queues.show_one, "Page: one queue"),
    make_route("GET /tasks", tasks.index, "Page: all tasks"),
    make_route("GET /tasks/{name}", tasks.show, "Page: one task"),
    make_route("GET /schedules", schedules.index, "Page: schedules"),
    make_route("GET /schedules/new", schedule_form.new, "Page: make a schedule"),
    make_route("GET /schedules/{name}", schedules.show, "Page: one schedule"),
    make_route("GET /schedules/{name}/edit", schedule_form.edit, "Page: change a schedule"),
    make_route("GET /timeline", timeline.index, "Page: the timeline"),
    make_route("GET /instances", instances.index, "Page: instances"),
    make_route("GET /instances/{id}", instances.show, "Page: one instance"),
    make_route("GET /limits", limits.index, "Page: limits, and the busiest groups"),
    make_route("GET /limits/{name}", limits.show, "Page: limits of one queue or task, and their groups"),
    make_route("GET /locks", locks.index, "Page: locks"),
    make_route("GET /locks/{name}", locks.show, "Page: one lock"),
    make_route("GET /audit", audit.index, "Page: the audit"),
    make_route("GET /system", system.index, "Page: store, settings, doctor"),
)
