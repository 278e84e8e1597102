"""The dashboard inside a Django site, under /jobs, for the staff of its admin.

    python mounted_django.py                  the site on http://127.0.0.1:8000/jobs/
    drumbeat run mounted_django:app           in another terminal: a worker

Log in as ada (password ada, a superuser, may do everything) or grace (password grace, staff, may look). A Django site of
several files has the settings in settings.py, the function `application` in asgi.py, and `app` beside its tasks. It must be
served as ASGI.
"""

import io
from collections.abc import Mapping
from typing import Any

import django
import uvicorn
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIRequest

from drumbeat import Drumbeat
from drumbeat.web import AccessRole, Caller

PREFIX = "/jobs"
app = Drumbeat()


@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


if not settings.configured:
    settings.configure(
        SECRET_KEY="an example: make your own",
        ALLOWED_HOSTS=["127.0.0.1", "localhost"],
        ROOT_URLCONF=__name__,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}},
        INSTALLED_APPS=[f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages")],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
    )
    django.setup()

from django.contrib import admin  # noqa: E402  (Django must be set up first)
from django.contrib.auth import get_user, get_user_model  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.urls import path  # noqa: E402

urlpatterns = [path("admin/", admin.site.urls)]


@sync_to_async
def access(scope: Mapping[str, Any]) -> Caller | None:
    """The caller of the dashboard: the user of Django's session, if they are staff."""
    request = ASGIRequest(scope, io.BytesIO())
    request.session = SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    user = get_user(request)
    if not (user.is_active and user.is_staff):
        return None
    return Caller(name=user.get_username(), role=AccessRole.ADMIN if user.is_superuser else AccessRole.VIEWER)


site = get_asgi_application()
dashboard = app.dashboard(access=access)


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{PREFIX}/"):
        await dashboard({**scope, "root_path": PREFIX}, receive, send)
    else:
        await site(scope, receive, send)


def make_database() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    people = get_user_model().objects
    for name, rights in (("ada", {"is_staff": True, "is_superuser": True}), ("grace", {"is_staff": True})):
        if not people.filter(username=name).exists():
            people.create_user(name, password=name, **rights)


if __name__ == "__main__":
    make_database()
    uvicorn.run(application, port=8000, log_level="warning", lifespan="off")
