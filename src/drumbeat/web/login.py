"""Logging in with a browser: a token is given once, and a random session in a cookie stands for it from then on.

The cookie is for this site and its pages' requests only (HttpOnly, SameSite=Strict), under the path that we are mounted at.
"""

from __future__ import annotations

import logging
from typing import NamedTuple
from urllib.parse import parse_qs, quote

import msgspec

from drumbeat.web.access import COOKIE, SESSION_SECONDS, cookies
from drumbeat.web.call import Answer, Call
from drumbeat.web.pages.rendering import render_bare
from drumbeat.web.problem import Problem

log = logging.getLogger(__name__)

FORM = "application/x-www-form-urlencoded"
SEE_OTHER = 303
AS_IT_IS = "/:@!$&'()*+,;=~-._%?"


class LoginQuery(msgspec.Struct, frozen=True, kw_only=True):
    next: str = "/"
    """Where to go after it: a path of ours."""


class Form(NamedTuple):
    token: str
    next: str


async def show(call: Call) -> Answer:
    """GET /login."""
    if not call.parts.gate.has_login:
        return _to(call, "/")
    return render_bare(call, "login.html", next=own_path(call.query.next), wrong=False)


async def enter(call: Call) -> Answer:
    """POST /login."""
    if not call.parts.gate.has_login:
        raise Problem(403, "nobody logs in here: there are no tokens")
    form = _form(call)
    caller = call.parts.gate.judge(call.scope, form.token, via="session")
    if caller is None:
        log.warning("login to the dashboard refused")
        return render_bare(call, "login.html", status=401, next=own_path(form.next), wrong=True)
    _end_sessions(call)  # of whoever used this browser before
    secret = call.parts.gate.sessions.begin(caller)
    log.info("login to the dashboard", extra={"who": caller.name, "role": caller.role.value})
    return _to(call, own_path(form.next), cookie=_cookie(call, secret, int(SESSION_SECONDS)))


async def leave(call: Call) -> Answer:
    """POST /logout."""
    _end_sessions(call)
    return _to(call, "/login", cookie=_cookie(call, "", 0))


def _end_sessions(call: Call) -> None:
    for secret in cookies(call.headers):
        call.parts.gate.sessions.end(secret)


def own_path(text: str) -> str:
    """The path, if it is one of ours; else the first page. `//host` and `/\\host` lead a browser elsewhere."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() and len(text) < 2_000
    return text if is_own else "/"


def _form(call: Call) -> Form:
    if call.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Problem(415, f"a login is sent as {FORM}", argument="Content-Type")
    try:
        fields = parse_qs(call.raw.decode(), errors="strict", max_num_fields=10)
    except ValueError:
        raise Problem(400, "the form cannot be read") from None
    return Form(token=fields.get("token", [""])[-1].strip(), next=fields.get("next", ["/"])[-1])


def _to(call: Call, path: str, cookie: str | None = None) -> Answer:
    # Quoted, never left out: without its é, /é/host would be //host and lead elsewhere.
    headers = {"Location": call.root + quote(path, safe=AS_IT_IS)}
    return Answer(
        status=SEE_OTHER,
        body=b"",
        media="text/plain",
        headers=headers if cookie is None else headers | {"Set-Cookie": cookie},
    )


def _cookie(call: Call, secret: str, seconds: int) -> str:
    secure = "; Secure" if _is_tls(call) else ""
    path = call.root.replace(";", "%3B") or "/"
    return f"{COOKIE}={secret}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _is_tls(call: Call) -> bool:
    """Whether the browser came by https, as far as anybody says so: the server, a proxy, or the browser itself."""
    proxies = call.headers.get("x-forwarded-proto", "").lower().split(",")
    return (
        call.scheme == "https" or proxies[0].strip() == "https" or call.headers.get("origin", "").startswith("https:")
    )
