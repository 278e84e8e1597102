"""A refusal for somebody who looks at a page: HTML instead of JSON, and the login for somebody who has not logged in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drumbeat.web.call import API, Answer, Call, Caller, Role
from drumbeat.web.host import Host
from drumbeat.web.parts import Parts
from drumbeat.web.problem import Problem

NOBODY = Caller(name="", role=Role.VIEWER, via="nobody")


def wants_page(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Whether a person looks at the answer."""
    return method in ("GET", "HEAD") and not path.startswith(API) and "text/html" in headers.get("accept", "")


def page_of(problem: Problem, host: Host, parts: Parts, *, scope: Mapping[str, Any], root: str, path: str) -> Answer:
    """What is shown instead of the page."""
    from drumbeat.web.pages.rendering import render_bare

    call = Call(host=host, parts=parts, caller=NOBODY, root=root, here=path)
    if problem.status == 401 and parts.gate.has_login:
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = path + (f"?{query}" if query else "")
        to = call.url("/login", next=wanted if wanted != "/" else None)
        return Answer(status=303, body=b"", media="text/plain", headers={"Location": to})
    shown = render_bare(call, "problem.html", status=problem.status, problem=problem.record)
    return Answer(status=shown.status, body=shown.body, media=shown.media, headers=shown.headers | problem.headers)
