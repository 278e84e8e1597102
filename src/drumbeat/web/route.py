"""A row of the route table, and what decides who may use it. Imports no web framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from starlette.responses import Response

    from drumbeat.web.request import DashboardRequest

Handler = Callable[["DashboardRequest"], Awaitable["msgspec.Struct | Response"]]

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


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table that router, roles, OpenAPI document and docs are built from."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    """`/api/v1/jobs/{id}`: each name in braces is one segment, found in `request.path_params`."""
    handler: Handler
    role: AccessRole | None
    """The least role that may use it; None: everybody, logged in or not."""
    summary: str
    query: type[msgspec.Struct] = NoParameters
    body: type[msgspec.Struct] | None = None
    """Of JSON. The audit records its `reason`, and its `target()` and `verb()` if it has them; a `dry_run` is not recorded."""
    response: Any = None
    """The type of the record in the response; None: not JSON."""
    status: int = 200
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


def clamp_limit(limit: int) -> int:
    """The page size for a requested limit: 1 to 500."""
    return max(1, min(MAX_PAGE_SIZE, limit))
