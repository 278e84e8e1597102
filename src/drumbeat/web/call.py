"""One request, read and checked: what a handler gets, and what it may give back.

A handler is `async def show(call: Call) -> Struct | Answer`. It knows nothing of HTTP: a page calls the same handlers in
process by `call.ask`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from drumbeat.web.host import Host

if TYPE_CHECKING:
    from drumbeat.web.parts import Parts

MOST_ITEMS = 500
API = "/api/v1"


class Role(StrEnum):
    """What somebody may do; each may do what the ones before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks."""

    name: str
    role: Role
    via: str = "access"
    """How it is known: local, token, session, proxy, or access (a function of the program's own)."""


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query or body of a route that takes none."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is more than a record with status 200."""

    status: int = 200
    body: Any = None
    """A Struct becomes JSON; text and bytes go as they are; an async iterator of bytes is streamed."""
    media: str = "application/json"
    headers: dict[str, str] = {}
    after: Callable[[], Awaitable[None]] | None = None
    """What is still to be done when the answer has been sent: the rest of an act on very many. It has no other parent than
    the request, so it ends with the server."""


Given = msgspec.Struct | Answer
Handler = Callable[["Call"], Awaitable[Given]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table that router, roles, OpenAPI document and docs come from."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    """`/api/v1/jobs/{id}`: each name in braces is one segment, found in `call.path`."""
    handler: Handler
    role: Role | None
    """The least role that may call it; None: everybody, logged in or not."""
    summary: str
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    """Of JSON. Its `why` goes into the audit, its `target()`, if it has one, too; with `dry_run` set nothing is recorded."""
    answer: Any = None
    """The type of the record that it gives; None: it is no JSON."""
    status: int = 200
    also: tuple[int, ...] = ()
    """Other statuses that it may have with the same record: 202, it goes on in the background."""
    verb: str = ""
    """What the audit calls it, such as queues.pause. Every write has one."""

    @property
    def is_api(self) -> bool:
        return self.path.startswith(API)

    @property
    def is_safe(self) -> bool:
        return self.method == "GET"


class Call:
    """What a handler knows of a request."""

    def __init__(
        self,
        *,
        host: Host,
        parts: Parts,
        caller: Caller,
        path: Mapping[str, str] | None = None,
        query: Any = None,
        body: Any = None,
        root: str = "",
        headers: Mapping[str, str] | None = None,
        raw: bytes = b"",
        here: str = "/",
        scheme: str = "http",
        scope: Mapping[str, Any] | None = None,
    ) -> None:
        self.host = host
        self.parts = parts
        """What all requests of this dashboard share: the ticker, static files, sessions."""
        self.caller = caller
        self.path: Mapping[str, str] = path or {}
        self.query: Any = query if query is not None else Nothing()
        self.body: Any = body if body is not None else Nothing()
        self.root = root
        """What stands before every path of ours, when we are mounted under one."""
        self.headers: Mapping[str, str] = headers or {}
        """By lower-case name."""
        self.raw = raw
        self.here = here
        """The path that was asked for, without the root."""
        self.scheme = scheme
        self.scope: Mapping[str, Any] = scope or {}
        """What the server knows of the connection."""
        self.act = ""
        """Of a write: the id of its record in the audit."""
        self.touched = 1
        """How many a write has touched; a handler says so here if it is not one."""

    def url(self, path: str, **query: object) -> str:
        """The address of one of our own paths; a query of None is left out."""
        given = {name: value for name, value in query.items() if value is not None and value != ""}
        return self.root + quote(path, safe="/:@!$&'()*+,;=~-._%") + (f"?{urlencode(given)}" if given else "")

    def static(self, file: str) -> str:
        """The address of a static file, which changes when the file does, so that it may be kept for ever."""
        return f"{self.root}/static/{file}?v={self.parts.files.version(file)}"

    def may(self, role: Role | str) -> bool:
        """Whether the caller may do what needs this role: pages leave out what it may not."""
        return self.caller.role.allows(Role(role))

    async def ask(
        self, handler: Handler, *, path: Mapping[str, str] | None = None, query: msgspec.Struct | None = None
    ) -> Any:
        """The answer of another handler that only reads, for the same caller: pages say what the API says."""
        return await handler(
            Call(
                host=self.host,
                parts=self.parts,
                caller=self.caller,
                path=path,
                query=query,
                root=self.root,
                here=self.here,
            )
        )


def clamped(limit: int) -> int:
    """How many items a list may have: 1 to 500, whatever was asked for."""
    return max(1, min(MOST_ITEMS, limit))
