"""The dashboard inside your own site, under /admin/jobs, for the users of the site: Starlette or FastAPI.

    python mounted.py                 a Starlette site on http://127.0.0.1:8000/
    python mounted.py fastapi         the same with FastAPI
    drumbeat run mounted:app          in another terminal: a worker

Log in as ada (password ada, admin) or grace (password grace, viewer). For Django see mounted_django.py.
"""

import base64
import binascii
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from drumbeat import Drumbeat
from drumbeat.web import AccessRole, Caller

app = Drumbeat()

PREFIX = "/admin/jobs"
ROLES = {"ada": AccessRole.ADMIN, "grace": AccessRole.VIEWER}


@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


class NameAndPassword(AuthenticationBackend):
    """The site's own authentication; yours may use sessions or single sign-on."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        given = conn.headers.get("Authorization", "").removeprefix("Basic ")
        try:
            name, _, password = base64.b64decode(given).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = password = ""
        if name not in ROLES or not secrets.compare_digest(name.encode(), password.encode()):
            raise AuthenticationError("log in as ada or grace")
        return AuthCredentials(["authenticated"]), SimpleUser(name)


def ask(_: HTTPConnection, error: AuthenticationError) -> Response:
    return PlainTextResponse(str(error), 401, {"WWW-Authenticate": 'Basic realm="shop"'})


LOGIN = Middleware(AuthenticationMiddleware, backend=NameAndPassword(), on_error=ask)


def access(scope: Mapping[str, Any]) -> Caller:
    """The caller of the dashboard, as the site has authenticated it; None would be an unknown caller."""
    name = scope["user"].username
    return Caller(name=name, role=ROLES[name])


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[None]:
    async with app:  # closes connections when the site stops
        yield


async def home(request: Request) -> Response:
    job = await greet.enqueue(request.user.username)
    return PlainTextResponse(f"queued: {PREFIX}/jobs/{job.id}\n")


def starlette_site() -> Starlette:
    routes = [Route("/", home), Mount(PREFIX, app.dashboard(access=access))]
    return Starlette(routes=routes, middleware=[LOGIN], lifespan=lifespan)


def fastapi_site() -> Any:
    from fastapi import FastAPI

    site = FastAPI(middleware=[LOGIN], lifespan=lifespan)
    site.add_api_route("/", home)
    site.mount(PREFIX, app.dashboard(access=access))
    return site


if __name__ == "__main__":
    make = fastapi_site if "fastapi" in sys.argv[1:] else starlette_site
    uvicorn.run(make(), port=8000, log_level="warning")
