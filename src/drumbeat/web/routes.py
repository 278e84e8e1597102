"""The table: every address of the dashboard, with who may call it.

Router, OpenAPI document, role matrix and docs come from it.
"""

from __future__ import annotations

from drumbeat.web import files
from drumbeat.web.api import queues, status
from drumbeat.web.call import API, Role, Route

VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN

_STATUS = (
    Route(
        method="GET",
        path=f"{API}/status",
        handler=status.show,
        role=VIEWER,
        summary="The whole cluster in one record",
        answer=status.StatusNow,
    ),
)

_QUEUES = (
    Route(
        method="GET",
        path=f"{API}/queues",
        handler=queues.list_queues,
        role=VIEWER,
        summary="All queues",
        answer=queues.QueueList,
    ),
    Route(
        method="GET",
        path=f"{API}/queues/{{name}}",
        handler=queues.show,
        role=VIEWER,
        summary="One queue",
        answer=queues.QueueShown,
    ),
    Route(
        method="POST",
        path=f"{API}/queues/{{name}}/pause",
        handler=queues.pause,
        role=OPERATOR,
        summary="Let no worker take a job of this queue",
        body=queues.Why,
        answer=queues.Done,
        verb="queues.pause",
    ),
    Route(
        method="POST",
        path=f"{API}/queues/{{name}}/resume",
        handler=queues.resume,
        role=OPERATOR,
        summary="Undo a pause",
        body=queues.Why,
        answer=queues.Done,
        verb="queues.resume",
    ),
)

_OUTSIDE = (
    Route(
        method="GET",
        path="/static/{file}",
        handler=files.serve,
        role=None,
        summary="Scripts and styles",
        query=files.StaticQuery,
    ),
)

ROUTES: tuple[Route, ...] = (*_STATUS, *_QUEUES, *_OUTSIDE)


def all_routes() -> tuple[Route, ...]:
    """Those of the API, and the pages."""
    from drumbeat.web.pages import PAGES  # here, because pages call the handlers of the API

    return (*ROUTES, *PAGES)
