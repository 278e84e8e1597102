"""The pages: one row for each, all for viewers. A page calls the handlers of the API in process and shows what they say."""

from __future__ import annotations

import msgspec

from drumbeat.web.call import Handler, Nothing, Role, Route

from . import (
    audit,
    dead,
    exporting,
    instances,
    job,
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
from .searching import JobsQuery


def _page(path: str, handler: Handler, summary: str, query: type[msgspec.Struct] = Nothing) -> Route:
    return Route(method="GET", path=path, handler=handler, role=Role.VIEWER, summary=summary, query=query)


PAGES: tuple[Route, ...] = (
    _page("/", overview.show, "Page: the overview", overview.OverviewQuery),
    _page("/jobs", jobs.show_list, "Page: search of jobs", JobsQuery),
    _page("/jobs/export", exporting.export, "All jobs that match, as JSON lines", JobsQuery),
    _page("/jobs/{id}", job.show, "Page: one job"),
    _page("/dead", dead.show, "Page: dead letters", dead.DeadQuery),
    _page("/queues", queues.show_all, "Page: all queues"),
    _page("/queues/{name}", queues.show_one, "Page: one queue", queues.QueueQuery),
    _page("/tasks", tasks.index, "Page: all tasks", tasks.TasksPage),
    _page("/tasks/{name}", tasks.show, "Page: one task", tasks.TaskPage),
    _page("/schedules", schedules.index, "Page: schedules", schedules.SchedulesPage),
    _page("/schedules/new", schedule_form.new, "Page: make a schedule", schedule_form.NewPage),
    _page("/schedules/{name}", schedules.show, "Page: one schedule", schedules.FiresPage),
    _page("/schedules/{name}/edit", schedule_form.edit, "Page: change a schedule"),
    _page("/timeline", timeline.index, "Page: the timeline", timeline.TimelinePage),
    _page("/instances", instances.index, "Page: instances"),
    _page("/instances/{id}", instances.show, "Page: one instance"),
    _page("/locks", locks.index, "Page: locks", locks.LocksPage),
    _page("/locks/{name}", locks.show, "Page: one lock"),
    _page("/audit", audit.index, "Page: the audit", audit.AuditPage),
    _page("/system", system.index, "Page: store, settings, doctor"),
)
