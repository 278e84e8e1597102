"""From an ASGI request to what a handler gets: the route, the query, the body. Nothing is believed, sizes come first."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec

from drumbeat.web.problem import Problem
from drumbeat.web.request import Route

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_QUERY_BYTES = 8 * 1024
MAX_PARAMETERS = 100
BODY_TIMEOUT = 30.0
MAX_BODY_OVERHEAD_BYTES = 64 * 1024
"""A body may be larger than the arguments of a job by this much."""


class RouteMatch(msgspec.Struct, frozen=True):
    route: Route
    path_params: dict[str, str]


class RouteTable:
    """Finds the route of a request."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._by_pattern: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods = by_path.setdefault(route.path, {})
            if route.method in methods:
                raise ValueError(f"{route.method} {route.path} stands twice in the table")
            methods[route.method] = route
        # Plain words before names in braces: /jobs/counts is not the job called counts.
        for path in sorted(by_path, key=lambda path: [part.startswith("{") for part in path.split("/")]):
            pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path))
            self._by_pattern.append((re.compile(pattern), by_path[path]))

    def find(self, method: str, path: str) -> RouteMatch:
        """The route. Raises Problem 404 or 405."""
        for pattern, methods in self._by_pattern:
            if (match := pattern.fullmatch(path)) is not None:
                route = methods.get("GET" if method == "HEAD" else method)
                if route is None:
                    allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
                    raise Problem(405, f"this path takes {allowed}", headers={"Allow": allowed})
                return RouteMatch(route, match.groupdict())
        raise Problem(404, "no such path")


def split_root_path(scope: Mapping[str, Any]) -> tuple[str, str]:
    """What stands before our own paths, as addresses are written, and the path after it."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    # Quoted: a program may be mounted under a path with a part that the caller chooses, and this goes into headers.
    return quote(root, safe="/:@!$&'()*+,;=~"), path or "/"


def merge_headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """By lower-case name; several of one name are joined, as HTTP says."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        glue = "; " if name == "cookie" else ", "
        headers[name] = f"{headers[name]}{glue}{value}" if name in headers else value
    return headers


def parse_query(route: Route, raw: bytes) -> msgspec.Struct:
    """The query as the route's own record; an empty value, as forms send it, is none."""
    if len(raw) > MAX_QUERY_BYTES:
        raise Problem(400, f"the query has more than {MAX_QUERY_BYTES} bytes")
    try:
        pairs = parse_qsl(raw.decode("ascii"), errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise Problem(400, "the query cannot be parsed") from None
    given = {name: value for name, value in pairs if value != ""}
    if any("\0" in value for value in given.values()):
        raise Problem(422, "NUL characters are not allowed", argument=_first_with_nul(given))
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise _validation_problem(error) from None


async def read_body(receive: Receive, most: int) -> bytes:
    """The whole body, if it is no larger than that, and comes within the time that a slow line needs."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await _read_chunks(receive, most)
    except TimeoutError:
        raise Problem(
            408, f"the body was not received within {BODY_TIMEOUT:g} s", headers={"Connection": "close"}
        ) from None


async def _read_chunks(receive: Receive, most: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "the client disconnected before the end of the body")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > most:
            raise Problem(413, f"the body has more than {most} bytes")
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)


def decode_body(route: Route, raw: bytes, headers: Mapping[str, str]) -> msgspec.Struct | None:
    """The body as the route's own record. An empty one is an empty object."""
    if route.body is None:
        return None
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if raw and kind != "application/json":
        raise Problem(415, f"the body must be application/json, not {kind[:100]}", argument="Content-Type")
    try:
        return msgspec.json.decode(raw or b"{}", type=route.body)
    except msgspec.ValidationError as error:
        raise _validation_problem(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Problem(400, "the body is nested too deeply") from None


def _validation_problem(error: msgspec.ValidationError) -> Problem:
    message, _, place = str(error).partition(" - at `$")
    argument = place.rstrip("`").lstrip(".") or None
    if argument is None and (found := re.search(r"field `(\w+)`", message)):
        argument = found[1]
    return Problem(422, f"{argument}: {message}" if argument else message, argument=argument)


def _first_with_nul(given: dict[str, str]) -> str:
    return next(name for name, value in given.items() if "\0" in value)
