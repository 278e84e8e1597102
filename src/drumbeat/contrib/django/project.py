"""The app of a Django project, and its settings: `settings.DRUMBEAT`.

    {"database": "default"}                  jobs in the site's own database: they commit with its data
    {"url": "redis://...", ...}              jobs elsewhere; the other keys are those of `Drumbeat(...)`
    {"url": "redis://...", "database": ...}  jobs elsewhere, and the site's database as their outbox
    {"app": "shop.jobs:app"}                 an app of the project's own, with settings of its own

Settings are read when they are needed, not at import: a test runner replaces the databases after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured

from drumbeat import appref
from drumbeat.app import Drumbeat
from drumbeat.contrib.django.database_url import build_database_url
from drumbeat.errors import ConfigError
from drumbeat.names import short_repr
from drumbeat.settings import NAMES

SETTING = "DRUMBEAT"
OWN_KEYS = ("app", "database", "autoload")
"""What `settings.DRUMBEAT` has besides the settings of `Drumbeat(...)`."""


def read_setting() -> dict[str, Any]:
    """`settings.DRUMBEAT`, with names that exist.

    Raises:
        ConfigError: it is missing, or has unknown keys.
    """
    try:
        given = getattr(django_settings, SETTING, None)
    except ImproperlyConfigured:
        raise ConfigError(
            "there are no Django settings: set DJANGO_SETTINGS_MODULE, or use the project's manage.py"
        ) from None
    if given is None:
        raise ConfigError(
            f'settings.{SETTING} is missing: add {SETTING} = {{"database": "default"}}, or {{"url": ...}}, to the settings of '
            "the project"
        )
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ConfigError(f'settings.{SETTING} must be a dict such as {{"url": ...}}, not {short_repr(given)}')
    known = (*OWN_KEYS, *NAMES)
    for key in given:
        if key not in known:
            near = get_close_matches(key.lower(), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"settings.{SETTING} has no key {key!r}{hint}", key)
    autoload = given.get("autoload")
    if autoload is not None and not (isinstance(autoload, str) and autoload.isidentifier()):
        raise ConfigError(
            f"settings.{SETTING}[\"autoload\"] must be the name of a module such as 'tasks', or None, "
            f"not {short_repr(autoload)}",
            "autoload",
        )
    own_app = given.get("app")
    if own_app is not None and (other := [key for key in given if key not in ("app", "autoload")]):
        raise ConfigError(
            f"settings.{SETTING} names the app {own_app!r}, whose settings are its own: move {', '.join(other)} to its "
            "Drumbeat(...)",
            other[0],
        )
    return dict(given)


def get_database_alias() -> str | None:
    """The database of `settings.DATABASES` in which jobs are stored, or left for another store."""
    alias = read_setting().get("database")
    if alias is not None and alias not in django_settings.DATABASES:
        raise ConfigError(
            f'settings.{SETTING}["database"] is {short_repr(alias)}; settings.DATABASES has '
            f"{', '.join(django_settings.DATABASES)}",
            "database",
        )
    return alias


class ProjectSettings(Mapping[str, object]):
    """The settings of `app`, as `Drumbeat(...)` takes them, read from Django's at each use."""

    def _read(self) -> dict[str, object]:
        given = read_setting()
        if (own_app := given.get("app")) is not None:
            raise ConfigError(
                f"settings.{SETTING} names the app {own_app!r}: import that one, not drumbeat.contrib.django.app", "app"
            )
        if (alias := get_database_alias()) is not None:
            given["url" if given.get("url") is None else "outbox"] = build_database_url(alias)
        return {key: value for key, value in given.items() if key in NAMES}

    def __getitem__(self, name: str) -> object:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


class ProjectApp(Drumbeat):
    """The app of a project."""

    def __init__(self) -> None:
        super().__init__()
        self._internals.code_settings = ProjectSettings()
        self._internals.code_origin = f'settings.{SETTING}["{{name}}"]'

    def __repr__(self) -> str:
        return f"<Drumbeat of settings.{SETTING}>"


app: Drumbeat = ProjectApp()
"""The project's app, unless `settings.DRUMBEAT` names another."""


def find_job_database() -> str | None:
    """The database of the site on whose connection jobs can be enqueued; None while a test, or a flag, has put another store in
    its place."""
    if (alias := get_database_alias()) is None:
        return None
    name = "url" if read_setting().get("url") is None else "outbox"
    origin = app.settings.origin
    is_replaced = any(origin[each] != app._internals.code_origin.format(name=each) for each in ("url", name))
    return None if is_replaced else alias


def load_project_app() -> Drumbeat:
    """`app`, or the one that `settings.DRUMBEAT` names.

    Raises:
        ConfigError: the setting is missing or wrong, or that app cannot be imported.
    """
    ref = read_setting().get("app")
    if ref is None:
        return app
    if not isinstance(ref, str):
        raise ConfigError(f'settings.{SETTING}["app"] must be module:attr, not {short_repr(ref)}', "app")
    return appref.load(ref)
