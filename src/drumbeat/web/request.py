"""One request, read and checked: what a handler gets, and what it may give back.

A handler is `async def show(request: Call) -> Struct | Answer`. It knows nothing of HTTP: a page calls the same handlers in
process by `request.ask`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from drumbeat.protocols import DashboardApp

if TYPE_CHECKING:
    from drumbeat.web.state import DashboardState

MAX_PAGE_SIZE = 500
API_PREFIX = "/api/v1"


class AccessRole(StrEnum):
    """What somebody may do; each may do what the ones before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: AccessRole) -> bool:
        ranks = list(AccessRole)
        return ranks.index(self) >= ranks.index(needed)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks."""

    name: str
    role: AccessRole
    via: str = "access"
    """How it is known: local, token, session, proxy, or access (a function of the program's own)."""


class NoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query or body of a route that takes none."""


class DashboardResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is more than a record with status 200."""

    status_code: int = 200
    content: Any = None
    """A Struct becomes JSON; text and bytes go as they are; an async iterator of bytes is streamed."""
    media_type: str = "application/json"
    headers: dict[str, str] = {}
    background: Callable[[], Awaitable[None]] | None = None
    """What is still to be done when the answer has been sent: the rest of an act on very many. It has no other parent than
    the request, so it ends with the server."""


HandlerReturn = msgspec.Struct | DashboardResponse
Handler = Callable[["DashboardRequest"], Awaitable[HandlerReturn]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table that router, roles, OpenAPI document and docs come from."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    """`/api/v1/jobs/{id}`: each name in braces is one segment, found in `request.path`."""
    handler: Handler
    role: AccessRole | None
    """The least role that may request it; None: everybody, logged in or not."""
    summary: str
    query: type[msgspec.Struct] = NoParameters
    body: type[msgspec.Struct] | None = None
    """Of JSON. Its `reason` goes into the audit, its `target()`, if it has one, too; with `dry_run` set nothing is recorded."""
    response: Any = None
    """The type of the record that it gives; None: it is no JSON."""
    status: int = 200
    other_statuses: tuple[int, ...] = ()
    """Other statuses that it may have with the same record: 202, it goes on in the background."""
    verb: str = ""
    """What the audit calls it, such as queues.pause. Every write has one."""

    @property
    def is_api(self) -> bool:
        return self.path.startswith(API_PREFIX)

    @property
    def is_safe(self) -> bool:
        return self.method == "GET"


class DashboardRequest:
    """What a handler knows of a request."""

    def __init__(
        self,
        *,
        app: DashboardApp,
        dashboard: DashboardState,
        caller: Caller,
        path_params: Mapping[str, str] | None = None,
        query: Any = None,
        payload: Any = None,
        root_path: str = "",
        headers: Mapping[str, str] | None = None,
        raw_body: bytes = b"",
        route_path: str = "/",
        scheme: str = "http",
        scope: Mapping[str, Any] | None = None,
    ) -> None:
        self.app = app
        self.dashboard = dashboard
        """What all requests of this dashboard share: the ticker, static files, sessions."""
        self.caller = caller
        self.path_params: Mapping[str, str] = path_params or {}
        self.query: Any = query if query is not None else NoParameters()
        self.payload: Any = payload if payload is not None else NoParameters()
        self.root_path = root_path
        """What stands before every path of ours, when we are mounted under one."""
        self.headers: Mapping[str, str] = headers or {}
        """By lower-case name."""
        self.raw_body = raw_body
        self.route_path = route_path
        """The path that was asked for, without the root."""
        self.scheme = scheme
        self.scope: Mapping[str, Any] = scope or {}
        """What the server knows of the connection."""
        self.act_id = ""
        """Of a write: the id of its record in the audit."""
        self.touched = 1
        """How many a write has touched; a handler says so here if it is not one."""

    def link_to(self, path: str, **query: object) -> str:
        """The address of one of our own paths; a query of None is left out."""
        given = {name: value for name, value in query.items() if value is not None and value != ""}
        return self.root_path + quote(path, safe="/:@!$&'()*+,;=~-._%") + (f"?{urlencode(given)}" if given else "")

    def static_url(self, file: str) -> str:
        """The address of a static file, which changes when the file does, so that it may be kept for ever."""
        return f"{self.root_path}/static/{file}?v={self.dashboard.static_files.version_of(file)}"

    def has_role(self, role: AccessRole | str) -> bool:
        """Whether the caller may do what needs this role: pages leave out what it may not."""
        return self.caller.role.allows(AccessRole(role))

    async def invoke(
        self, handler: Handler, *, path_params: Mapping[str, str] | None = None, query: msgspec.Struct | None = None
    ) -> Any:
        """The answer of another handler that only reads, for the same caller: pages say what the API says."""
        return await handler(
            DashboardRequest(
                app=self.app,
                dashboard=self.dashboard,
                caller=self.caller,
                path_params=path_params,
                query=query,
                root_path=self.root_path,
                route_path=self.route_path,
            )
        )


def clamp_limit(limit: int) -> int:
    """How many items a list may have: 1 to 500, whatever was asked for."""
    return max(1, min(MAX_PAGE_SIZE, limit))
