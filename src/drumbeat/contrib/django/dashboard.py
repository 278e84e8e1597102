"""The dashboard inside a Django site, for its staff, with Django's own login. The site must be served as ASGI:

application = dashboard("/jobs", get_asgi_application())        the last line of asgi.py
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, reverse

from drumbeat.app import Drumbeat
from drumbeat.contrib.django.connection_scope import close_stale
from drumbeat.contrib.django.project import load_project_app
from drumbeat.errors import ConfigError

if TYPE_CHECKING:
    from drumbeat.web import Caller

Scope = MutableMapping[str, Any]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
RoleName = Literal["viewer", "operator", "admin"]
RoleOf = Callable[[Any], RoleName | None]
CALLER = "drumbeat.caller"
_ADMIN_LOGIN = "admin:login"


def get_staff_role(user: Any) -> RoleName | None:
    """Staff may look, superusers may do everything, others may not enter."""
    if not (user.is_active and user.is_staff):
        return None
    return "admin" if user.is_superuser else "viewer"


def dashboard(prefix: str, site: AsgiApp, *, role: RoleOf = get_staff_role, app: Drumbeat | None = None) -> AsgiApp:
    """`site` with the dashboard under `prefix`, for users whose `role` is not None; browsers of others are led to the login.

    Raises:
        ConfigError: the prefix is no path, or packages are missing (`drumbeat[web]`).
    """
    if not prefix.startswith("/") or not (prefix := prefix.rstrip("/")):
        raise ConfigError(f'the dashboard needs a path of its own, such as "/jobs", not {prefix!r}')
    pages = (app or load_project_app()).dashboard(access=lambda scope: scope[CALLER])

    async def application(scope: Scope, receive: Any, send: Any) -> None:
        root = str(scope.get("root_path", "")).rstrip("/") + prefix
        if scope["type"] != "http" or not f"{scope['path']}/".startswith(f"{root}/"):
            await site(scope, receive, send)
            return
        caller = await sync_to_async(identify)(scope, role)
        if caller is None and is_page(scope):
            await redirect_to_login(scope, send)
        else:
            await pages({**scope, "root_path": root, CALLER: caller}, receive, send)

    return application


def identify(scope: Scope, role: RoleOf) -> Caller | None:
    """The user of Django's session. Runs in a thread, outside of a request: it sees to the database's connections itself."""
    from drumbeat.web import AccessRole, Caller  # imported late: its packages are optional

    close_stale()
    try:
        request = ASGIRequest(scope, io.BytesIO())
        engine = import_module(settings.SESSION_ENGINE)
        request.session = engine.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
        user = get_user(request)
        allowed = role(user)
        return None if allowed is None else Caller(name=user.get_username(), role=AccessRole(allowed), via="django")
    finally:
        close_stale()


def is_page(scope: Scope) -> bool:
    """Whether a browser asks for a page, and not a program for data."""
    accepted = [value for name, value in scope["headers"] if name == b"accept"]
    return scope["method"] in ("GET", "HEAD") and any(b"text/html" in value for value in accepted)


async def redirect_to_login(scope: Scope, send: Any) -> None:
    try:
        login = reverse(_ADMIN_LOGIN)
    except NoReverseMatch:
        login = resolve_url(settings.LOGIN_URL)
    query = scope["query_string"].decode("latin-1")
    wanted = f"{scope['path']}?{query}" if query else scope["path"]
    location = f"{login}?{urlencode({'next': wanted})}"
    headers = [(b"location", location.encode("latin-1")), (b"cache-control", b"no-store"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 302, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
