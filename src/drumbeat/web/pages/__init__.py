"""Routes of the pages, all for viewers. Pages call the handlers of the API in process."""

from __future__ import annotations

import msgspec

from drumbeat.web.route import AccessRole, Handler, NoParameters, Route

from . import (
    audit,
    dead,
    instances,
    job,
    job_export,
    jobs,
    locks,
    overview,
    queues,
    schedule_form,
    schedules,
    system,
    tasks,
    timeline,
)
from .search_query import JobsPageQuery


def _page(path: str, handler: Handler, summary: str, query: type[msgspec.Struct] = NoParameters) -> Route:
    return Route(method="GET", path=path, handler=handler, role=AccessRole.VIEWER, summary=summary, query=query)


PAGES: tuple[Route, ...] = (
    _page("/", overview.show, "Page: the overview", overview.OverviewQuery),
    _page("/jobs", jobs.show_list, "Page: search of jobs", JobsPageQuery),
    _page("/jobs/export", job_export.export, "All jobs that match, as JSON lines", JobsPageQuery),
    _page("/jobs/{id}", job.show, "Page: one job"),
    _page("/dead", dead.show, "Page: dead letters", dead.DeadPageQuery),
    _page("/queues", queues.show_all, "Page: all queues"),
    _page("/queues/{name}", queues.show_one, "Page: one queue", queues.QueuePageQuery),
    _page("/tasks", tasks.index, "Page: all tasks", tasks.TasksPageQuery),
    _page("/tasks/{name}", tasks.show, "Page: one task", tasks.TaskPageQuery),
    _page("/schedules", schedules.index, "Page: schedules", schedules.SchedulesPageQuery),
    _page("/schedules/new", schedule_form.new, "Page: make a schedule", schedule_form.NewScheduleQuery),
    _page("/schedules/{name}", schedules.show, "Page: one schedule", schedules.FiresPageQuery),
    _page("/schedules/{name}/edit", schedule_form.edit, "Page: change a schedule"),
    _page("/timeline", timeline.index, "Page: the timeline", timeline.TimelinePageQuery),
    _page("/instances", instances.index, "Page: instances"),
    _page("/instances/{id}", instances.show, "Page: one instance"),
    _page("/locks", locks.index, "Page: locks", locks.LocksPageQuery),
    _page("/locks/{name}", locks.show, "Page: one lock"),
    _page("/audit", audit.index, "Page: the audit", audit.AuditPageQuery),
    _page("/system", system.index, "Page: store, settings, doctor"),
)
