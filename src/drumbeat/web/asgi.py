"""The dashboard as an ASGI application: routing, access, audit, responses.

    request -> host check -> route -> caller -> role, origin -> query and body -> handler (writes: audited) -> response

Starlette routes by path only; methods, errors and prefixes are handled here, because an application around a mounted
dashboard would otherwise answer with its own error pages.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Literal

from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router

from drumbeat.admin import Admin
from drumbeat.web import access, parsing
from drumbeat.web.audit_middleware import call_handler, perform_audited, to_response
from drumbeat.web.error_pages import accepts_html, render_problem
from drumbeat.web.panels import Panel
from drumbeat.web.problem import Problem, to_problem
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import ANONYMOUS, Caller, Route
from drumbeat.web.routes import all_routes
from drumbeat.web.state import DashboardState

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from drumbeat.web.access import Access

SEND_TIMEOUT = 30.0
"""Seconds in which a client must read a part of a response."""
CSP = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with it a browser sends `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
}


class Dashboard:
    """An ASGI application. It may be mounted anywhere: every address is built from root_path."""

    def __init__(
        self, app: Admin, access: Access | Literal["open"] | None = None, *, panels: Sequence[Panel] = ()
    ) -> None:
        self.state = DashboardState(app, access, panels)
        self._router = _build_router(self, (*all_routes(), *self.state.panel_routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope if scope["type"] != "http" else _normalize_root(scope), receive, send)

    async def serve(self, endpoint: _PathEndpoint | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request for a path of the table; None: for an unknown one."""
        response = await self._respond(endpoint, scope, receive)
        await _send(response, scope, receive, send)

    async def _respond(self, endpoint: _PathEndpoint | None, scope: Scope, receive: Receive) -> Response:
        headers = parsing.merge_headers(scope)
        root, path = parsing.split_root_path(scope)
        request = DashboardRequest(scope, receive, self.state, root_path=parsing.quote_root(root), route_path=path)
        try:
            self.state.access_control.check_host(scope, headers)
            if endpoint is None:
                raise Problem(404, "no such path")
            route = endpoint.choose_route(request)
            request.caller = await self._authorize(scope["drumbeat.outer_scope"], headers, route)
            if route.method != "GET":
                request.raw_body = await parsing.read_body(request, self._max_body_bytes)
            request.query = parsing.parse_query(route, scope.get("query_string", b""))
            request.payload = parsing.decode_body(route, request.raw_body, headers)
            if route.verb:
                return await perform_audited(request, route)
            return to_response(await call_handler(request, route))
        except Exception as error:
            problem = to_problem(error)
            if accepts_html(scope["method"], path, headers):
                request.caller = ANONYMOUS
                return render_problem(problem, request)
            return problem.to_response()

    async def _authorize(self, scope: Scope, headers: dict[str, str], route: Route) -> Caller:
        control = self.state.access_control
        if route.method != "GET":
            access.check_origin(headers, proven=route.role is not None and control.reads_tokens)
        if route.role is None:
            return ANONYMOUS
        caller = await control.identify(scope, headers)
        if caller is None:
            raise control.unauthenticated_problem()
        access.check_role(caller, route.role)
        return caller

    @property
    def _max_body_bytes(self) -> int:
        return self.state.app.settings.payload_limit + parsing.MAX_BODY_OVERHEAD_BYTES


class _PathEndpoint:
    """The methods of one path. An ASGI application and no function: Starlette then checks no methods."""

    def __init__(self, dashboard: Dashboard, path: str) -> None:
        self._dashboard = dashboard
        self.path = path
        self.methods: dict[str, Route] = {}
        self._names = re.findall(r"\{(\w+)\}", path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Without the parameters of a Mount around us: the audit's target is made of ours.
        scope["path_params"] = {name: scope["path_params"][name] for name in self._names}
        await self._dashboard.serve(self, scope, receive, send)

    def choose_route(self, request: DashboardRequest) -> Route:
        """The row for the request's method. Raises Problem 404 or 405."""
        if self.path.format(**request.path_params) != request.route_path:
            raise Problem(404, "no such path")  # Starlette also matches a path with a newline at its end
        route = self.methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            allowed = ", ".join(sorted({*self.methods, *(["HEAD"] if "GET" in self.methods else [])}))
            raise Problem(405, f"this path takes {allowed}", headers={"Allow": allowed})
        return route


def _build_router(dashboard: Dashboard, rows: Sequence[Route]) -> Router:
    by_path: dict[str, _PathEndpoint] = {}
    for row in rows:
        methods = by_path.setdefault(row.path, _PathEndpoint(dashboard, row.path)).methods
        if row.method in methods:
            raise ValueError(f"{row.method} {row.path} is in the table twice")
        methods[row.method] = row
    # Plain words before names in braces: /jobs/counts is not the job called counts.
    paths = sorted(by_path, key=lambda path: [part.startswith("{") for part in path.split("/")])
    router = Router([StarletteRoute(path, by_path[path], name=path) for path in paths], redirect_slashes=False)
    close_websocket = router.default

    async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
        await (
            dashboard.serve(None, scope, receive, send)
            if scope["type"] == "http"
            else close_websocket(scope, receive, send)
        )

    router.default = not_found
    return router


def _normalize_root(scope: Scope) -> Scope:
    """A copy for Starlette, which strips no root that ends with a slash and matches no empty path."""
    root, path = parsing.split_root_path(scope)
    return {**scope, "root_path": root, "path": root + path, "drumbeat.outer_scope": scope}


async def _send(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    # Responses that set no Cache-Control are not cached: the next user of the browser may be another person.
    for name, value in {"Cache-Control": "no-store", **SECURITY_HEADERS}.items():
        response.headers.setdefault(name, value)
    stream = response.body_iterator if isinstance(response, StreamingResponse) else None
    background, response.background = response.background, None
    if scope["method"] == "HEAD":
        send = _drop_body(send)
        if stream is not None:
            response = Response(b"", response.status_code, dict(response.headers))
    try:
        await response(scope, receive, _with_send_timeout(send))
    except (OSError, ClientDisconnect):
        # The client is gone. A background act runs all the same: it is recorded as begun.
        if background is None:
            raise
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
    if background is not None:
        await background()


def _with_send_timeout(send: Send) -> Send:
    """A client that does not read must not hold resources, whatever server we are mounted in."""

    async def send_in_time(message: Message) -> None:
        async with asyncio.timeout(SEND_TIMEOUT):
            await send(message)

    return send_in_time


def _drop_body(send: Send) -> Send:
    async def only_head(message: Message) -> None:
        await send(message if message["type"] == "http.response.start" else {**message, "body": b""})

    return only_head
