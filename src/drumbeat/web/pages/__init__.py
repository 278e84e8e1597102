"""The pages: one row for each, all for viewers. A page calls the handlers of the API in process and shows what they say."""

from __future__ import annotations

import msgspec

from drumbeat.web.call import Handler, Nothing, Role, Route

from . import exporting, job, jobs, queues
from .searching import JobsQuery


def _page(path: str, handler: Handler, summary: str, query: type[msgspec.Struct] = Nothing) -> Route:
    return Route(method="GET", path=path, handler=handler, role=Role.VIEWER, summary=summary, query=query)


PAGES: tuple[Route, ...] = (
    _page("/jobs", jobs.show_list, "Page: search of jobs", JobsQuery),
    _page("/jobs/export", exporting.export, "All jobs that match, as JSON lines", JobsQuery),
    _page("/jobs/{id}", job.show, "Page: one job"),
    _page("/queues", queues.show_all, "Page: all queues"),
)
