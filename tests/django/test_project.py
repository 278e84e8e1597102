"""`settings.DRUMBEAT`: what it may have, what is said of mistakes, and which store it makes of a database of the site."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from drumbeat import Drumbeat
from drumbeat.contrib.django import app, dashboard
from drumbeat.contrib.django.apps import check_setting, load_tasks
from drumbeat.contrib.django.connection_scope import close_stale
from drumbeat.contrib.django.database_url import build_database_url
from drumbeat.contrib.django.management.commands.drumbeat import drop_django_options
from drumbeat.contrib.django.project import find_job_database, load_project_app
from drumbeat.errors import ConfigError
from drumbeat.store.urls import parse
from drumbeat.testing import Kit
from tests.apps.django_site import tasks

NOT_A_DICT = "must be a dict"
own_app = Drumbeat("sqlite:///own.db")
Described = Callable[..., str]


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Described:
    """The URL of a database that is described like this."""

    def describe(vendor: str, **facts: Any) -> str:
        empty = {"NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": "", "OPTIONS": {}}
        monkeypatch.setattr(connections["default"], "vendor", vendor)
        known = connections["default"].settings_dict
        monkeypatch.setattr(connections["default"], "settings_dict", known | empty | facts)
        return build_database_url("default")

    return describe


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, 'settings.DRUMBEAT is missing: add DRUMBEAT = {"database": "default"}'),
        ("sqlite:///x.db", NOT_A_DICT),
        ({1: 2}, NOT_A_DICT),
        ({"URL": "x"}, "settings.DRUMBEAT has no key 'URL'; did you mean 'url'?"),
        ({"database": "other"}, "settings.DRUMBEAT[\"database\"] is 'other'; settings.DATABASES has default"),
        ({"url": "nope://x"}, "is not a store"),
        (
            {"database": "default", "autoload": ["tasks"]},
            "settings.DRUMBEAT[\"autoload\"] must be the name of a module such as 'tasks', or None, not ['tasks']",
        ),
        ({"url": "sqlite:///x.db", "poll": "soon"}, 'setting poll (settings.DRUMBEAT["poll"])'),
        (
            {"app": "shop:app", "poll": 1},
            "names the app 'shop:app', whose settings are its own: move poll to its Drumbeat",
        ),
    ],
)
def test_a_mistake_is_told_by_the_check_in_one_line(given: object, said: str) -> None:
    with override_settings(DRUMBEAT=given):
        [error] = check_setting()
    assert said in error.msg
    assert "\n" not in error.msg


def test_an_app_of_the_projects_own() -> None:
    with override_settings(DRUMBEAT={"app": "tests.django.test_project:own_app"}):
        assert load_project_app().settings.url.endswith("own.db")
        assert list(check_setting()) == []
        with pytest.raises(ConfigError, match=r"import that one, not drumbeat\.contrib\.django\.app"):
            app._internals.load_settings()
    with override_settings(DRUMBEAT={"app": "nowhere:app"}), pytest.raises(ConfigError, match="there is no module"):
        load_project_app()


def test_every_setting_can_be_set_and_messages_name_it() -> None:
    with override_settings(DRUMBEAT={"url": "sqlite:///x.db", "concurrency": 3, "imports": ["shop.mails"]}):
        found = app._internals.load_settings()
    assert (found.concurrency, found.imports, found.origin["url"]) == (3, ("shop.mails",), 'settings.DRUMBEAT["url"]')
    assert repr(app) == "<Drumbeat of settings.DRUMBEAT>"


def test_a_database_beside_another_store_is_its_outbox() -> None:
    with override_settings(DRUMBEAT={"url": "redis://localhost", "database": "default"}):
        found = app._internals.load_settings()
    assert (found.url, found.outbox) == ("redis://localhost", build_database_url("default"))


@pytest.mark.parametrize(
    ("facts", "url"),
    [
        ({}, "postgresql:///shop"),
        ({"USER": "ada", "PASSWORD": "a/b@c", "HOST": "db"}, "postgresql://ada:a%2Fb%40c@db/shop"),
        ({"USER": "ada", "HOST": "::1", "PORT": 5433}, "postgresql://ada@[::1]:5433/shop"),
        ({"HOST": "/run/pg", "PORT": "5433"}, "postgresql:///shop?host=%2Frun%2Fpg&port=5433"),
        ({"HOST": "db", "OPTIONS": {"sslmode": "require"}}, "postgresql://db/shop?sslmode=require"),
    ],
)
def test_the_url_of_a_database_of_postgresql(described: Described, facts: dict[str, Any], url: str) -> None:
    assert described("postgresql", **facts) == url
    assert parse(url).engine == "postgres"


def test_databases_that_can_hold_no_jobs(described: Described) -> None:
    with pytest.raises(ConfigError, match="is mysql, which can hold no jobs"):
        described("mysql")
    with pytest.raises(ConfigError, match="service file"):
        described("postgresql", OPTIONS={"service": "shop"})
    assert parse(described("sqlite", NAME="/a b/x.db")).path.name == "x.db"


def test_tests_of_a_site_in_memory_use_the_kit(described: Described) -> None:
    described("sqlite", NAME="file:memorydb_default?mode=memory&cache=shared")
    assert list(check_setting()) == []
    with pytest.raises(ConfigError, match="in memory"):
        parse(app._internals.load_settings().url)
    with Kit(app) as kit:
        assert find_job_database() is None
        tasks.note.enqueue(1)
        kit.run_until_idle()
        assert kit.ran(tasks.note.module_path) == 1


def test_a_module_of_tasks_that_fails_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(DRUMBEAT={"url": "sqlite:///x.db", "autoload": "settings"}):
        load_tasks()
    with override_settings(DRUMBEAT={"url": "sqlite:///x.db", "autoload": None}):
        load_tasks()


def test_a_connection_in_a_transaction_is_left_alone(described: Described, tmp_path: Path) -> None:
    connection = connections["default"]
    described("sqlite", NAME=tmp_path / "site.db")
    connection.ensure_connection()
    connection.in_atomic_block = True  # as within `atomic`; connecting resets it
    try:
        close_stale()
        assert connection.connection is not None
    finally:
        connection.in_atomic_block = False
        connection.close()


def test_the_dashboard_needs_a_path() -> None:
    for prefix in ("jobs", "", "/"):
        with pytest.raises(ConfigError, match="a path of its own"):
            dashboard(prefix, lambda *_: None)  # type: ignore[arg-type]


def test_options_of_django_are_not_passed_on() -> None:
    given = ["run", "--settings", "shop.settings", "--pythonpath=lib", "--role", "worker"]
    assert drop_django_options(given) == ["run", "--role", "worker"]


def test_a_command_called_by_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("drumbeat", "glossary", "lease")
    assert "lease" in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        call_command("drumbeat", "no-such-command")
    assert left.value.code == 2
