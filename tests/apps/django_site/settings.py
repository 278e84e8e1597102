"""Settings of the project, and of every test that uses Django in this process: Django has them once for a process.

SITE_POSTGRES: the URL of a database of PostgreSQL, for the site and its jobs; else a SQLite file, which no test writes to.
"""

import os
import tempfile
from urllib.parse import unquote, urlsplit

import django

_postgres = os.environ.get("SITE_POSTGRES")
_parts = urlsplit(_postgres or "")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.path[1:],
        "USER": _parts.username,
        "PASSWORD": unquote(_parts.password or ""),
        "HOST": _parts.hostname,
        "PORT": _parts.port,
        "CONN_MAX_AGE": None,
    }
    if _postgres
    else {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{tempfile.gettempdir()}/drumbeat-site-{os.getpid()}.db"}
}
INSTALLED_APPS = ["drumbeat.contrib.django", "tests.apps.django_site"]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")
SECRET_KEY = "of tests"
USE_TZ = True
LOGGING_CONFIG = None
DRUMBEAT = {"database": "default", "name": "site"}
TASKS = {
    "default": {"BACKEND": "drumbeat.contrib.django.backend.DrumbeatBackend", "QUEUES": ["default", "mails"]},
    "patient": {"BACKEND": "drumbeat.contrib.django.backend.DrumbeatBackend", "OPTIONS": {"retries": 2}},
}
