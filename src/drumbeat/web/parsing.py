"""Parsing of untrusted input: prefix, headers, query and body of a request. Sizes are checked first."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request

from drumbeat.web.problem import Problem
from drumbeat.web.route import NoParameters, Route

MAX_QUERY_BYTES = 8 * 1024
MAX_PARAMETERS = 100
BODY_TIMEOUT = 30.0
MAX_BODY_OVERHEAD_BYTES = 64 * 1024
"""A body may be larger than the arguments of a job by this much."""


def split_root_path(scope: Mapping[str, Any]) -> tuple[str, str]:
    """The prefix of all our paths, and the path after it."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    if not root:
        return _split_cut_path(path, scope.get("raw_path") or b"")
    if path == root or path.startswith(root + "/"):
        path = path[len(root) :]
    return root, path or "/"


def _split_cut_path(path: str, raw_path: bytes) -> tuple[str, str]:
    """The same where whoever has mounted us cuts the prefix off, adds a slash to the end, and sets no root_path (Litestar): the
    path as it was requested still has the prefix."""
    requested = unquote(raw_path.partition(b"?")[0].decode("latin-1"))
    rest = path.rstrip("/")
    if requested == path or not requested.rstrip("/").endswith(rest):
        return "", path or "/"
    return requested.rstrip("/").removesuffix(rest), rest or "/"


def quote_root(root: str) -> str:
    """A part of the prefix may be chosen by the caller, and it is used in headers."""
    return quote(root, safe="/:@!$&'()*+,;=~")


def merge_headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """Headers by lower-case name; repeated ones are joined as HTTP defines."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        glue = "; " if name == "cookie" else ", "
        headers[name] = f"{headers[name]}{glue}{value}" if name in headers else value
    return headers


def parse_query(route: Route, raw: bytes) -> msgspec.Struct:
    """The query as the record of its route; empty values, as forms send them, are left out."""
    if len(raw) > MAX_QUERY_BYTES:
        raise Problem(400, f"the query has more than {MAX_QUERY_BYTES} bytes")
    try:
        pairs = parse_qsl(raw.decode("ascii"), errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise Problem(400, "the query cannot be parsed") from None
    given = {name: value for name, value in pairs if value != ""}
    if route.query is not NoParameters and not route.is_api:
        # A page may share its query with the API, which is strict; a page ignores what it does not know.
        given = {name: value for name, value in given.items() if name in route.query.__struct_fields__}
    if any("\0" in value for value in given.values()):
        raise Problem(422, "NUL characters are not allowed", argument=_first_with_nul(given))
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise _validation_problem(error) from None


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body, with a limit of its size and of the time it may take."""
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise Problem(413, f"the body has more than {max_bytes} bytes")
                chunks.append(chunk)
    except TimeoutError:
        raise Problem(
            408, f"the body was not received within {BODY_TIMEOUT:g} s", headers={"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise Problem(400, "the client disconnected before the end of the body") from None
    return b"".join(chunks)


def decode_body(route: Route, raw: bytes, headers: Mapping[str, str]) -> msgspec.Struct:
    """The body as the route's own record. An empty one is an empty object."""
    if route.body is None:
        return NoParameters()
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
    if "datetime" in message:
        message = "must be a time with its offset from UTC, such as 2026-01-31T09:30:00Z"
    return Problem(422, f"{argument}: {message}" if argument else message, argument=argument)


def _first_with_nul(given: dict[str, str]) -> str:
    return next(name for name, value in given.items() if "\0" in value)
