"""A fresh store for each measure, on a server of the bench's own, and how many operations it was sent.

What is counted is what the server itself says it was sent. SQLite has no server: there it is the players' own count.
"""

import asyncio
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from drumbeat.store.urls import migrate_store

Count = Callable[[], int]


@contextmanager
def place(engine: str) -> Iterator[tuple[str, Count | None]]:
    """The URL of an empty store, and what counts the operations that it was sent."""
    with {"sqlite": _sqlite, "postgres": _postgres, "redis": _redis}[engine]() as found:
        yield found


@contextmanager
def _sqlite() -> Iterator[tuple[str, Count | None]]:
    with tempfile.TemporaryDirectory(prefix="bench-locks-") as folder:
        yield f"sqlite:///{Path(folder) / 'bench.db'}", None


@contextmanager
def _postgres() -> Iterator[tuple[str, Count | None]]:
    from tests.servers.postgres import PostgresServer

    # fsync is on, as on any server whose data matter.
    with PostgresServer(18) as server:
        asyncio.run(migrate_store(server.url))

        def count() -> int:
            asyncio.run(server.execute("ALTER SYSTEM SET log_statement = 'all'"))
            asyncio.run(server.execute("SELECT pg_reload_conf()"))
            return len(
                re.findall(
                    r"LOG:  (?:execute|statement)(?:[^\n]*\n){0,1}?[^\n]*\.lock_(?:enter|look|leave)\(", server.log
                )
            )

        yield server.url, count


@contextmanager
def _redis() -> Iterator[tuple[str, Count | None]]:
    from redis import Redis

    from bench.redis import SETTINGS
    from tests.servers.redis import RedisServer

    with RedisServer(settings=SETTINGS) as server, Redis.from_url(server.url) as client:

        def count() -> int:
            told = client.info("commandstats")
            return sum(told.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))

        yield server.url, count
