"""Login with a browser: a token is exchanged for a random session in a cookie.

The cookie is HttpOnly and SameSite=Strict, and valid under the path that the dashboard is mounted at.
"""

from __future__ import annotations

import logging
from typing import NamedTuple
from urllib.parse import parse_qs, quote

import msgspec
from starlette.responses import Response

from drumbeat.web.access import COOKIE, SESSION_SECONDS, session_cookies
from drumbeat.web.pages.layout import render_bare_page
from drumbeat.web.parsing import merge_headers
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest

log = logging.getLogger(__name__)

FORM = "application/x-www-form-urlencoded"
SEE_OTHER = 303
SAFE_CHARACTERS = "/:@!$&'()*+,;=~-._%?"


class LoginQuery(msgspec.Struct, frozen=True, kw_only=True):
    next: str = "/"
    """The path to redirect to."""


class LoginForm(NamedTuple):
    token: str
    next: str


async def show_login(request: DashboardRequest, query: LoginQuery) -> Response:
    """GET /login."""
    if not request.dashboard.access_control.has_login:
        return _redirect(request, "/")
    return render_bare_page(request, "login.html", next=safe_redirect_path(query.next), wrong=False)


async def log_in(request: DashboardRequest) -> Response:
    """POST /login."""
    if not request.dashboard.access_control.has_login:
        raise Problem(403, "login is disabled: no tokens are configured")
    form = _parse_form(request)
    caller = request.dashboard.access_control.check_token(request.scope, form.token, via="session")
    if caller is None:
        log.warning("dashboard login refused")
        return render_bare_page(request, "login.html", status=401, next=safe_redirect_path(form.next), wrong=True)
    _end_sessions(request)  # sessions of a previous user of this browser
    secret = request.dashboard.access_control.sessions.begin(caller)
    log.info("dashboard login", extra={"who": caller.name, "role": caller.role.value})
    return _redirect(request, safe_redirect_path(form.next), cookie=_cookie(request, secret, int(SESSION_SECONDS)))


async def log_out(request: DashboardRequest) -> Response:
    """POST /logout."""
    _end_sessions(request)
    return _redirect(request, "/login", cookie=_cookie(request, "", 0))


def _end_sessions(request: DashboardRequest) -> None:
    for secret in session_cookies(merge_headers(request.scope)):
        request.dashboard.access_control.sessions.end(secret)


def safe_redirect_path(text: str) -> str:
    """The path if it is a local one, else `/`. `//host` and `/\\host` would leave this site."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() and len(text) < 2_000
    return text if is_own else "/"


def _parse_form(request: DashboardRequest) -> LoginForm:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Problem(415, f"a login is sent as {FORM}", argument="Content-Type")
    try:
        fields = parse_qs(request.raw_body.decode(), errors="strict", max_num_fields=10)
    except ValueError:
        raise Problem(400, "the form cannot be parsed") from None
    return LoginForm(token=fields.get("token", [""])[-1].strip(), next=fields.get("next", ["/"])[-1])


def _redirect(request: DashboardRequest, path: str, cookie: str | None = None) -> Response:
    # Quoted, not dropped: without its é, /é/host would become //host, another site.
    headers = {"Location": request.root_path + quote(path, safe=SAFE_CHARACTERS)}
    return Response(status_code=SEE_OTHER, headers=headers if cookie is None else headers | {"Set-Cookie": cookie})


def _cookie(request: DashboardRequest, secret: str, seconds: int) -> str:
    secure = "; Secure" if _is_tls(request) else ""
    path = request.root_path.replace(";", "%3B") or "/"
    return f"{COOKIE}={secret}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _is_tls(request: DashboardRequest) -> bool:
    """Whether the browser uses https, according to the server, a proxy or the browser itself."""
    proxies = request.headers.get("x-forwarded-proto", "").lower().split(",")
    return (
        request.scope.get("scheme") == "https"
        or proxies[0].strip() == "https"
        or request.headers.get("origin", "").startswith("https:")
    )
