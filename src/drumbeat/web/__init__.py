"""The dashboard: pages, API and metrics of one app, as an ASGI application.

    request -> host known -> route -> who calls -> role, origin -> query and body -> handler (writes: on record) -> answer

It is served by `drumbeat dashboard`, or mounted by a program under a path of its own. starlette, uvicorn and jinja2 are
imported only here and below, and this package only where somebody wants a dashboard. Nothing runs while nobody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Literal

import msgspec

from drumbeat.errors import ConfigError
from drumbeat.protocols import DashboardApp
from drumbeat.web import access, parsing
from drumbeat.web.access import OPEN, Access
from drumbeat.web.audit_middleware import perform_audited
from drumbeat.web.error_pages import ANONYMOUS, accepts_html, render_problem
from drumbeat.web.headers import add_security_headers
from drumbeat.web.panels import Panel
from drumbeat.web.parsing import Receive, RouteTable, Send
from drumbeat.web.problem import to_problem
from drumbeat.web.request import AccessRole, Caller, DashboardRequest, DashboardResponse, HandlerReturn, Route
from drumbeat.web.routes import all_routes
from drumbeat.web.state import DashboardState

SEND_TIMEOUT = 30.0
"""Seconds in which a client must take a part of an answer."""

__all__ = ["AccessRole", "Caller", "Dashboard", "dashboard"]


def dashboard(
    app: DashboardApp, access: Access | Literal["open"] | None = None, *, panels: Sequence[Panel] = ()
) -> Dashboard:
    """The dashboard of an app as an ASGI application; `extra` are panels of the program's own, for the overview.

    access: a function that says who calls; "open": whoever is on this machine is admin, unless there are tokens or a proxy;
    None: only by tokens or a proxy.

    ImportError: a package that it needs is missing.
    """
    if isinstance(access, str) and access != OPEN:
        raise ConfigError(f'access must be a function or "open", not {access[:40]!r}', "access")
    # Both are used later, but somebody who has not installed them should hear of it now.
    import jinja2  # noqa: F401
    import starlette.responses  # noqa: F401

    return Dashboard(app, access, panels=panels)


class Dashboard:
    """An ASGI application. It may be mounted anywhere: every address is made from root_path."""

    def __init__(
        self, app: DashboardApp, access: Access | Literal["open"] | None = None, *, panels: Sequence[Panel] = ()
    ) -> None:
        self._app = app
        self.state = DashboardState(app, access, panels)
        self._table = RouteTable((*all_routes(), *self.state.panel_routes))

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._handle_lifespan(receive, send)
        elif scope["type"] == "http":
            answer = await self._respond(scope, receive)
            await _send(answer, scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _handle_lifespan(self, receive: Receive, send: Send) -> None:
        """Say yes to the server. Nothing is opened here: where we are mounted nobody calls this."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _respond(self, scope: Any, receive: Receive) -> DashboardResponse:
        headers = parsing.merge_headers(scope)
        root, path = parsing.split_root_path(scope)
        try:
            self.state.access_control.check_host(scope, headers)
            found = self._table.find(scope["method"], path)
            caller = await self._authorize(scope, headers, found.route)
            raw = b"" if found.route.is_safe else await parsing.read_body(receive, self._max_body_bytes)
            request = DashboardRequest(
                app=self._app,
                dashboard=self.state,
                caller=caller,
                path_params=found.path_params,
                query=parsing.parse_query(found.route, scope.get("query_string", b"")),
                payload=parsing.decode_body(found.route, raw, headers),
                root_path=root,
                headers=headers,
                raw_body=raw,
                route_path=path,
                scheme=scope.get("scheme", "http"),
                scope=scope,
            )
            given = await (perform_audited(request, found.route) if found.route.verb else found.route.handler(request))
            return _to_response(given, found.route)
        except Exception as error:
            problem = to_problem(error)
            if accepts_html(scope["method"], path, headers):
                return render_problem(problem, self._app, self.state, scope=scope, root=root, path=path)
            return problem.to_response()

    async def _authorize(self, scope: Any, headers: dict[str, str], route: Route) -> Caller:
        if not route.is_safe:
            access.check_origin(headers, proven=route.role is not None and self.state.access_control.reads_tokens)
        if route.role is None:
            return ANONYMOUS
        caller = await self.state.access_control.identify(scope, headers)
        if caller is None:
            raise self.state.access_control.unauthenticated_problem()
        access.check_role(caller, route.role)
        return caller

    @property
    def _max_body_bytes(self) -> int:
        return self._app.settings.payload_limit + parsing.MAX_BODY_OVERHEAD_BYTES


def _to_response(given: HandlerReturn, route: Route) -> DashboardResponse:
    """The answer with its body written out: what cannot be written is told as a mistake, too, with all headers."""
    answer = (
        given if isinstance(given, DashboardResponse) else DashboardResponse(status_code=route.status, content=given)
    )
    if isinstance(answer.content, AsyncIterator):
        return answer
    return msgspec.structs.replace(answer, content=_encode(answer.content))


async def _send(answer: DashboardResponse, scope: Any, receive: Receive, send: Send) -> None:
    from starlette.responses import Response, StreamingResponse

    headers = add_security_headers(answer.headers)
    response: Response
    if isinstance(answer.content, AsyncIterator) and scope["method"] != "HEAD":
        response = StreamingResponse(answer.content, answer.status_code, headers, answer.media_type)
    else:
        body = b"" if isinstance(answer.content, AsyncIterator) else _encode(answer.content)
        response = Response(body, answer.status_code, headers, answer.media_type)
    if scope["method"] == "HEAD":
        send = _drop_body(send)
    try:
        await response(scope, receive, _with_send_timeout(send))
    except OSError:
        # Whoever asked has gone. What it was promised is done all the same: it is on record as begun.
        if answer.background is None:
            raise
    finally:
        if isinstance(answer.content, AsyncGenerator):
            await answer.content.aclose()
    if answer.background is not None:
        await answer.background()


def _encode(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode("utf-8", "replace") if isinstance(body, str) else msgspec.json.encode(body)


def _with_send_timeout(send: Send) -> Send:
    """Somebody who asks and does not read must not hold what it asked for, whatever server we are mounted in."""

    async def send_in_time(message: Any) -> None:
        async with asyncio.timeout(SEND_TIMEOUT):
            await send(message)

    return send_in_time


def _drop_body(send: Send) -> Send:
    async def only_head(message: Any) -> None:
        await send(message if message["type"] == "http.response.start" else message | {"body": b""})

    return only_head
