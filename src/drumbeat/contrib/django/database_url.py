"""The URL of one of `settings.DATABASES`, so that the jobs of a site can be in its own database, without a second password."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connections

from drumbeat.errors import ConfigError

_SSL_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs")


def build_database_url(alias: str) -> str:
    """Of the database as it is now: within a test run, the test's.

    Raises:
        ConfigError: it can hold no jobs.
    """
    connection = connections[alias]
    facts: dict[str, Any] = connection.settings_dict
    match connection.vendor:
        case "sqlite":
            return _sqlite_url(str(facts["NAME"]))
        case "postgresql":
            return _postgres_url(alias, facts)
        case other:
            raise ConfigError(
                f'the database {alias!r} is {other}, which can hold no jobs: give settings.DRUMBEAT a "url" instead, of '
                "SQLite, PostgreSQL or Redis",
                "database",
            )


def _sqlite_url(name: str) -> str:
    if is_in_memory(name):
        return f"sqlite:///{name}"  # refused when it is used: tests may put another store in its place
    return f"sqlite:///{quote(str(Path(name).absolute()))}"


def is_in_memory(name: str) -> bool:
    """As Django's tests on SQLite are by default: each connection would have such a database for itself."""
    return ":memory:" in name or "mode=memory" in name


def _postgres_url(alias: str, facts: dict[str, Any]) -> str:
    options: dict[str, Any] = facts.get("OPTIONS") or {}
    if options.get("service") or not facts["NAME"]:
        raise ConfigError(
            f'the database {alias!r} is described by a service file, which is not read here: give settings.DRUMBEAT a "url"',
            "database",
        )
    query = {name: str(options[name]) for name in _SSL_OPTIONS if name in options}
    host, port = str(facts["HOST"] or ""), str(facts["PORT"] or "")
    if host.startswith("/"):  # the folder of a socket
        query |= {"host": host} | ({"port": port} if port else {})
        host = port = ""
    elif ":" in host:
        host = f"[{host}]"
    user = quote(str(facts["USER"] or ""), safe="")
    password = f":{quote(str(facts['PASSWORD']), safe='')}" if facts["PASSWORD"] else ""
    place = f"{host}:{port}" if port else host
    tail = f"?{urlencode(query)}" if query else ""
    return f"postgresql://{user}{password}{'@' if user else ''}{place}/{quote(str(facts['NAME']), safe='')}{tail}"
