"""A row of the route table, and what decides who may use it. Imports no web framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import msgspec

from drumbeat.web.fields import doc

if TYPE_CHECKING:
    from starlette.responses import Response

Handler = Callable[..., Awaitable["msgspec.Struct | Response"]]
"""Takes the request, and by name those of `query`, `body` and the names in braces of its path that it declares."""

MAX_PAGE_SIZE = 500
API_PREFIX = "/api/v1"


class AccessRole(StrEnum):
    """What a caller may do; each role includes the ones before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request."""

    name: str
    role: AccessRole
    via: str = "access"
    """How it was identified: local, token, session, proxy, or access (the application's own function)."""


ANONYMOUS = Caller(name="", role=AccessRole.VIEWER, via="nobody")


class NoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query or body of a route that takes none."""


class ReasonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a write that takes only a reason."""

    reason: Annotated[str, doc("Recorded in the audit, and shown where the change is.")] = ""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table that router, roles, OpenAPI document and docs are built from."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    """`/api/v1/jobs/{id}`: each name in braces is one segment."""
    handler: Handler
    role: AccessRole | None
    """The least role that may use it; None: everybody, logged in or not."""
    summary: str
    query: type[msgspec.Struct] = NoParameters
    body: type[msgspec.Struct] | None = None
    """Of JSON. The audit records its `reason`, and its `target()` and `verb()` if it has them; a `dry_run` is not recorded."""
    response: Any = None
    """The type of the record in the response; None: not JSON."""
    other_statuses: tuple[int, ...] = ()
    """Other statuses with the same record: 202 if the act continues in the background."""
    verb: str = ""
    """The audit's verb, such as queues.pause. Every write has one."""

    @property
    def is_api(self) -> bool:
        return self.path.startswith(API_PREFIX)

    @property
    def is_safe(self) -> bool:
        return self.method == "GET"


def make_route(
    address: str, handler: Handler, summary: str, role: AccessRole | None = AccessRole.VIEWER, verb: str = ""
) -> Route:
    """A row from its method and path, and the handler's annotations: its query, its body, and the record it returns.

    A write whose handler declares no body takes a reason, but for DELETE. A handler that may return a `Response` instead of
    its record may continue in the background: then the status is 202.
    """
    method: Any
    method, path = address.split(" ")
    hints = get_type_hints(handler, include_extras=True)
    response = hints["return"]
    if has_background := isinstance(response, UnionType):
        response = get_args(response)[0]
    return Route(
        method=method,
        path=path,
        handler=handler,
        role=role,
        summary=summary,
        query=hints.get("query", NoParameters),
        body=hints.get("body", ReasonBody if verb and method != "DELETE" else None),
        response=None if isinstance(response, type) and not issubclass(response, msgspec.Struct) else response,
        other_statuses=(202,) if has_background else (),
        verb=verb,
    )


def clamp_limit(limit: int) -> int:
    """The page size for a requested limit: 1 to 500."""
    return max(1, min(MAX_PAGE_SIZE, limit))
