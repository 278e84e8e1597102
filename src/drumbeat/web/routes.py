"""The table: every address of the dashboard, with who may call it.

Router, OpenAPI document, role matrix and docs come from it.
"""

from __future__ import annotations

from drumbeat.web import events, files, login, openapi, scraping
from drumbeat.web.api.table import NOUNS
from drumbeat.web.call import API, Role, Route

_EVENTS = (
    Route(
        method="GET",
        path=f"{API}/events",
        handler=events.follow,
        role=Role.VIEWER,
        summary="What changes, twice a second, as server-sent events",
    ),
    Route(
        method="GET",
        path=f"{API}/openapi.json",
        handler=openapi.show,
        role=Role.VIEWER,
        summary="This API, as an OpenAPI 3.1 document",
    ),
)

_OUTSIDE = (
    Route(
        method="GET",
        path="/metrics",
        handler=scraping.scrape,
        role=Role.VIEWER,
        summary="The metrics of the whole cluster, for Prometheus",
    ),
    Route(
        method="GET",
        path="/login",
        handler=login.show,
        role=None,
        summary="Log in with a token",
        query=login.LoginQuery,
    ),
    Route(method="POST", path="/login", handler=login.enter, role=None, summary="Log in: a form with token and next"),
    Route(method="POST", path="/logout", handler=login.leave, role=None, summary="Log out"),
    Route(
        method="GET",
        path="/static/{file}",
        handler=files.serve,
        role=None,
        summary="Scripts and styles",
        query=files.StaticQuery,
    ),
)

ROUTES: tuple[Route, ...] = (*NOUNS, *_EVENTS, *_OUTSIDE)


def all_routes() -> tuple[Route, ...]:
    """Those of the API, and the pages."""
    from drumbeat.web.pages import PAGES  # here, because pages call the handlers of the API

    return (*ROUTES, *PAGES)
