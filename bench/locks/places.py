"""A fresh store for each measure, on a server of the bench's own, and how many operations it was sent.

What is counted is what the server itself says it was sent. SQLite has no server: there it is the players' own count.
"""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import ROOT, python_path

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
        # By a process of its own: the package that is measured may be an older one (bench/pairs.py).
        subprocess.run(
            [sys.executable, "-m", "drumbeat", "migrate", server.url],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": python_path()},
            check=True,
            stdout=subprocess.DEVNULL,
        )

        def count() -> int:
            asyncio.run(server.execute("ALTER SYSTEM SET log_statement = 'all'"))
            asyncio.run(server.execute("SELECT pg_reload_conf()"))
            calls = r"\.lock_(?:acquire|acquire_all|ticket_status|release)\("
            return len(re.findall(rf"LOG:  (?:execute|statement)(?:[^\n]*\n){{0,1}}?[^\n]*{calls}", server.log))

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
