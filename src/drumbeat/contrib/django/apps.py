"""The app config of `drumbeat.contrib.django`: loads the project's tasks, makes the tables of jobs with `migrate`.

ready:   app.around closes connections  ->  tasks.py of each installed app is imported
check:   settings.DRUMBEAT, before every command of Django's that checks
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models.signals import post_migrate
from django.utils.module_loading import module_has_submodule

from drumbeat import appref
from drumbeat.contrib.django.connection_scope import surround_handlers
from drumbeat.contrib.django.database_url import is_in_memory
from drumbeat.contrib.django.project import app, get_database_alias, load_project_app, read_setting
from drumbeat.errors import ConfigError, DrumbeatError
from drumbeat.store.urls import migrate_store, parse
from drumbeat.sync_loop import SYNC_LOOP

COMMAND = "drumbeat"
DEFAULT_AUTOLOAD = "tasks"


class DrumbeatConfig(AppConfig):  # type: ignore[misc]
    """Of every process of the project: its web servers, its commands, its workers."""

    name = "drumbeat.contrib.django"
    label = "drumbeat"
    verbose_name = "Drumbeat"

    def ready(self) -> None:
        self.error: ConfigError | None = None
        checks.register(check_setting, "drumbeat")
        post_migrate.connect(migrate_jobs, sender=self)
        try:
            read_setting()
        except ConfigError:
            return  # the check says so, and the first use of the app
        try:
            surround_handlers(load_project_app())
            load_tasks()
        except ConfigError as error:
            # Without its tasks a site must not start; our own command says it in one line.
            if sys.argv[1:2] != [COMMAND]:
                raise ImproperlyConfigured(str(error)) from error
            self.error = error

    def check_loaded(self) -> None:
        """
        Raises:
            ConfigError: the setting is missing or wrong, or a module of tasks cannot be imported.
        """
        read_setting()
        if self.error is not None:
            raise self.error


def load_tasks() -> None:
    """Import `tasks.py` of each installed app, as `settings.DRUMBEAT["autoload"]` says.

    Raises:
        ConfigError: one cannot be imported; the message says where.
    """
    if not (module := read_setting().get("autoload", DEFAULT_AUTOLOAD)):
        return
    for config in apps.get_app_configs():
        if module_has_submodule(config.module, module):
            appref.import_installed(f"{config.name}.{module}")


def check_setting(app_configs: Any = None, **kwargs: Any) -> Iterable[checks.CheckMessage]:
    """Of Django's system checks: `settings.DRUMBEAT` is there, and right."""
    try:
        if "app" not in read_setting() and not _is_in_memory(get_database_alias()):
            parse(app._internals.load_settings().url)
    except DrumbeatError as error:
        return [checks.Error(str(error), id="drumbeat.E001")]
    return []


def migrate_jobs(sender: Any, using: str, **kwargs: Any) -> None:
    """After `manage.py migrate` of the database in which jobs are, or are left for another store; also of a test's."""
    if not getattr(settings, "DRUMBEAT", None) or using != get_database_alias() or _is_in_memory(using):
        return
    found = app._internals.load_settings()
    SYNC_LOOP.run("manage.py migrate", migrate_store(found.outbox or found.url, namespace=found.namespace))


def _is_in_memory(alias: str | None) -> bool:
    return alias is not None and is_in_memory(str(connections[alias].settings_dict["NAME"]))
