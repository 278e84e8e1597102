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
from drumbeat.web import access, reading
from drumbeat.web.access import OPEN, Access
from drumbeat.web.call import Answer, Call, Caller, Given, Role, Route
from drumbeat.web.failing import NOBODY, page_of, wants_page
from drumbeat.web.headers import with_secure
from drumbeat.web.host import Host
from drumbeat.web.panels import Panel
from drumbeat.web.parts import Parts
from drumbeat.web.problem import problem_of
from drumbeat.web.reading import Receive, Send, Table
from drumbeat.web.routes import all_routes
from drumbeat.web.writing import perform

SEND_TIMEOUT = 30.0
"""Seconds in which a client must take a part of an answer."""

__all__ = ["Caller", "Dashboard", "Role", "dashboard"]


def dashboard(host: Host, access: Access | Literal["open"] | None = None, *, extra: Sequence[Panel] = ()) -> Dashboard:
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

    return Dashboard(host, access, extra=extra)


class Dashboard:
    """An ASGI application. It may be mounted anywhere: every address is made from root_path."""

    def __init__(
        self, host: Host, access: Access | Literal["open"] | None = None, *, extra: Sequence[Panel] = ()
    ) -> None:
        self._host = host
        self.parts = Parts(host, access, extra)
        self._table = Table((*all_routes(), *self.parts.extra))

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            answer = await self._answer(scope, receive)
            await _send(answer, scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Say yes to the server. Nothing is opened here: where we are mounted nobody calls this."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(self, scope: Any, receive: Receive) -> Answer:
        headers = reading.headers_of(scope)
        root, path = reading.path_of(scope)
        try:
            self.parts.gate.check_host(scope, headers)
            found = self._table.find(scope["method"], path)
            caller = await self._caller(scope, headers, found.route)
            raw = b"" if found.route.is_safe else await reading.body_of(receive, self._most)
            call = Call(
                host=self._host,
                parts=self.parts,
                caller=caller,
                path=found.path,
                query=reading.query_of(found.route, scope.get("query_string", b"")),
                body=reading.decoded(found.route, raw, headers),
                root=root,
                headers=headers,
                raw=raw,
                here=path,
                scheme=scope.get("scheme", "http"),
                scope=scope,
            )
            given = await (perform(call, found.route) if found.route.verb else found.route.handler(call))
            return _as_answer(given, found.route)
        except Exception as error:
            problem = problem_of(error)
            if wants_page(scope["method"], path, headers):
                return page_of(problem, self._host, self.parts, scope=scope, root=root, path=path)
            return problem.answer()

    async def _caller(self, scope: Any, headers: dict[str, str], route: Route) -> Caller:
        if not route.is_safe:
            access.check_origin(headers, proven=route.role is not None and self.parts.gate.reads_tokens)
        if route.role is None:
            return NOBODY
        caller = await self.parts.gate.caller(scope, headers)
        if caller is None:
            raise self.parts.gate.unknown()
        access.check_role(caller, route.role)
        return caller

    @property
    def _most(self) -> int:
        return self._host.settings.payload_limit + reading.EXTRA_BODY


def _as_answer(given: Given, route: Route) -> Answer:
    """The answer with its body written out: what cannot be written is told as a mistake, too, with all headers."""
    answer = given if isinstance(given, Answer) else Answer(status=route.status, body=given)
    if isinstance(answer.body, AsyncIterator):
        return answer
    return msgspec.structs.replace(answer, body=_encoded(answer.body))


async def _send(answer: Answer, scope: Any, receive: Receive, send: Send) -> None:
    from starlette.responses import Response, StreamingResponse

    headers = with_secure(answer.headers)
    response: Response
    if isinstance(answer.body, AsyncIterator) and scope["method"] != "HEAD":
        response = StreamingResponse(answer.body, answer.status, headers, answer.media)
    else:
        body = b"" if isinstance(answer.body, AsyncIterator) else _encoded(answer.body)
        response = Response(body, answer.status, headers, answer.media)
    if scope["method"] == "HEAD":
        send = _without_body(send)
    try:
        await response(scope, receive, _in_time(send))
    except OSError:
        # Whoever asked has gone. What it was promised is done all the same: it is on record as begun.
        if answer.after is None:
            raise
    finally:
        if isinstance(answer.body, AsyncGenerator):
            await answer.body.aclose()
    if answer.after is not None:
        await answer.after()


def _encoded(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode("utf-8", "replace") if isinstance(body, str) else msgspec.json.encode(body)


def _in_time(send: Send) -> Send:
    """Somebody who asks and does not read must not hold what it asked for, whatever server we are mounted in."""

    async def send_in_time(message: Any) -> None:
        async with asyncio.timeout(SEND_TIMEOUT):
            await send(message)

    return send_in_time


def _without_body(send: Send) -> Send:
    async def only_head(message: Any) -> None:
        await send(message if message["type"] == "http.response.start" else message | {"body": b""})

    return only_head
