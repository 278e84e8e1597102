"""A request as handlers see it: Starlette's, with the caller, the parsed query and body, and the app.

A handler is `async def show(request: DashboardRequest, id: str) -> Struct | Response`; `make_route` says what else it may
take. Pages call the handlers of the API with their own request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote, urlencode

from starlette.requests import Request

from drumbeat.admin import Admin
from drumbeat.durations import from_us
from drumbeat.errors import InvalidArguments
from drumbeat.web.access import has_role
from drumbeat.web.problem import Problem
from drumbeat.web.route import ANONYMOUS, AccessRole, NoParameters

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

    from drumbeat.web.state import DashboardState

T = TypeVar("T")


class DashboardRequest(Request):
    def __init__(
        self, scope: Scope, receive: Receive, dashboard: DashboardState, *, root_path: str, route_path: str
    ) -> None:
        super().__init__(scope, receive)
        self.dashboard = dashboard
        """What all requests of this dashboard share: the ticker, static files, sessions."""
        self.root_path = root_path
        """The prefix of all our paths, quoted, when mounted under one."""
        self.route_path = route_path
        """The requested path without that prefix."""
        self.caller = ANONYMOUS
        self.query: Any = NoParameters()
        """The query string as the record of the route."""
        self.payload: Any = NoParameters()
        """The body as the record of the route."""
        self.raw_body = b""
        self.act_id = ""
        """Of a write: the id of its audit entry."""
        self.touched = 1
        """How many a write has touched; a handler sets it if it is not one, and its record has no `touched`."""
        self._loaded: dict[str, Any] = {}

    @property
    def app(self) -> Admin:
        """Not Starlette's: when mounted, that would be the application around us."""
        return self.dashboard.app

    def link_to(self, path: str, **query: object) -> str:
        """The address of one of our own paths; parameters that are None or empty are left out."""
        given = {name: value for name, value in query.items() if value is not None and value != ""}
        return self.root_path + quote(path, safe="/:@!$&'()*+,;=~-._%") + (f"?{urlencode(given)}" if given else "")

    def static_url(self, file: str) -> str:
        """The address of a static file. It contains the file's version, so the response may be cached for ever."""
        return f"{self.root_path}/static/{file}?v={self.dashboard.static_files.version_of(file)}"

    def has_role(self, role: AccessRole | str) -> bool:
        """Whether the caller has at least this role: pages leave out buttons that it may not use."""
        return has_role(self.caller, AccessRole(role))

    async def load_once(self, name: str, load: Callable[[], Awaitable[T]]) -> T:
        """What `load` returns, read once per request and shared by all handlers that it calls."""
        if name not in self._loaded:
            self._loaded[name] = await load()
        found: T = self._loaded[name]
        return found

    async def store_time(self) -> datetime:
        """The store's clock, read once per request."""

        async def read() -> datetime:
            return from_us(await (await self.app.store()).inspect.now())

        return await self.load_once("store_time", read)


async def refuse_with(status: Literal[404, 409], awaited: Awaitable[T]) -> T:
    """404: what a path names is unknown or invalid. 409: the job or schedule is in the wrong state, the act's only refusal."""
    try:
        return await awaited
    except InvalidArguments as error:
        raise Problem(status, str(error), argument=error.argument) from error
