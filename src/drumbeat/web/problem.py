"""Errors as application/problem+json (RFC 9457): one mapping from exceptions to status codes."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Annotated

import msgspec
from starlette.responses import Response

from drumbeat.errors import (
    ConfigError,
    DrumbeatError,
    InvalidArguments,
    JobExpired,
    JobNotFound,
    LockError,
    StoreError,
    StoreFull,
    UniqueConflict,
    UnknownTask,
    WorkflowNotFound,
)
from drumbeat.redaction import mask_urls
from drumbeat.web.fields import doc

log = logging.getLogger(__name__)

PROBLEM_MEDIA_TYPE = "application/problem+json"
_PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Registered phrases that `http.HTTPStatus` spells differently before Python 3.13."""


class ProblemRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every error response."""

    type: Annotated[str, doc("A word for programs, such as not-found; `about:blank` where the status says it all.")]
    title: str
    status: int
    detail: str
    argument: Annotated[str | None, doc("Which part of the request it is about.")] = None


class Problem(Exception):
    """Raised to end a request with an error. The detail is for people: it says what would be accepted."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        argument: str | None = None,
        type: str = "about:blank",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        # Messages of stores and drivers may contain URLs with passwords.
        shown = mask_urls(detail)
        self.record = ProblemRecord(
            type=type, title=reason_phrase(status), status=status, detail=shown, argument=argument
        )
        self.headers = headers or {}

    @property
    def status(self) -> int:
        return self.record.status

    def to_response(self) -> Response:
        return Response(msgspec.json.encode(self.record), self.status, self.headers, PROBLEM_MEDIA_TYPE)


def reason_phrase(status: int) -> str:
    """The registered phrase of an HTTP status, the same for all versions of Python."""
    return _PHRASES.get(status) or HTTPStatus(status).phrase


def to_problem(error: Exception) -> Problem:
    """The problem for an exception; unexpected exceptions are logged and their text is not shown."""
    match error:
        case Problem():
            return error
        case InvalidArguments() | ConfigError():
            return Problem(
                422, str(error), argument=getattr(error, "argument", None) or getattr(error, "setting", None)
            )
        case UnknownTask():
            return Problem(404, str(error), argument="task", type="unknown-task")
        case JobNotFound():
            return Problem(404, str(error), argument="id", type="job-not-found")
        case WorkflowNotFound():
            return Problem(404, str(error), argument="id", type="workflow-not-found")
        case JobExpired():
            return Problem(410, str(error), argument="id", type="job-expired")
        case UniqueConflict():
            return Problem(409, str(error), type="unique-conflict")
        case LockError():
            return Problem(409, str(error), type="lock")
        case StoreFull():
            return Problem(507, str(error), type="store-full")
        case StoreError():
            return Problem(503, str(error), type="store-away", headers={"Retry-After": "1"})
        case DrumbeatError():
            return Problem(409, str(error))
        case _:
            log.error("request failed", exc_info=error)
            return Problem(500, "internal error; see the log")
