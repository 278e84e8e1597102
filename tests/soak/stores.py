"""The store that is soaked: how it is started and restarted, and how large everything in it is."""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import asyncpg
import redis

from tests.engines.redis.conftest import DURABLE
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

Values = dict[str, float]


class SoakStore:
    """A SQLite file. It has no server to restart: its workers are restarted instead."""

    has_server = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.stack = ExitStack()

    def open(self) -> None:
        pass

    def close(self) -> None:
        self.stack.close()

    def stop(self, number: int) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    async def measure(self, pids: Iterable[int]) -> Values:
        values: Values = {
            "file bytes": self.path.stat().st_size,
            "wal bytes": Path(f"{self.path}-wal").stat().st_size,
            "connections": count_open(pids, self.path),
        }
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=5)) as db:
            (pages,), (free,), (size,) = (
                db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
            )
            values["used bytes"] = (pages - free) * size
            tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'drumbeat_%'")
            for (table,) in tables.fetchall():
                (count,) = db.execute(f'SELECT count(*) FROM "{table}"').fetchone()
                values[f"rows of {table.removeprefix('drumbeat_')}"] = count
        return values


def count_open(pids: Iterable[int], path: Path) -> int:
    """How many descriptors of these processes are of the file."""
    found = 0
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                found += descriptor.readlink() == path
            except OSError:
                continue
    return found


class SoakPostgres(SoakStore):
    has_server = True
    TABLES = """
        SELECT coalesce(parent.relname, part.relname) AS name, sum(pg_total_relation_size(part.oid))::bigint AS size
          FROM pg_class AS part
          LEFT JOIN pg_inherits ON inhrelid = part.oid
          LEFT JOIN pg_class AS parent ON parent.oid = inhparent
         WHERE part.relnamespace = 'drumbeat'::regnamespace AND part.relkind = 'r'
         GROUP BY 1
    """
    SERVER = """
        SELECT (SELECT sum(size)::bigint FROM pg_ls_waldir()) AS "wal bytes",
               (SELECT sum(n_dead_tup)::bigint FROM pg_stat_user_tables) AS "dead tuples",
               pg_database_size(current_database()) AS "database bytes",
               (SELECT count(*) FROM pg_stat_activity
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) AS "connections"
    """

    def open(self) -> None:
        # A minute between two vacuums would be the longest period of all.
        settings = {"autovacuum_naptime": "10s", "shared_buffers": "64MB", "max_wal_size": "128MB"}
        settings |= {"min_wal_size": "32MB", "checkpoint_timeout": "60s"}
        self._server = self.stack.enter_context(PostgresServer(settings=settings, in_memory=True))
        self.url = self._server.url

    def stop(self, number: int) -> None:
        self._server.stop("fast" if number % 2 else "immediate")

    def start(self) -> None:
        self._server.start()

    async def measure(self, pids: Iterable[int]) -> Values:
        connection = await asyncpg.connect(self.url, timeout=5)
        try:
            values: Values = {name: float(value) for name, value in (await connection.fetchrow(self.SERVER)).items()}
            for name, size in await connection.fetch(self.TABLES):
                values[f"bytes of {name}"] = float(size)
                values[f"rows of {name}"] = await connection.fetchval(f'SELECT count(*) FROM drumbeat."{name}"')
        finally:
            await connection.close()
        return values


LENGTHS = {"list": "LLEN", "set": "SCARD", "zset": "ZCARD", "hash": "HLEN"}


class SoakRedis(SoakStore):
    has_server = True

    def open(self) -> None:
        # Rewritten early: the file that only grows would say nothing in half an hour.
        settings = DURABLE | {"auto-aof-rewrite-min-size": "4mb"}
        self._server = self.stack.enter_context(RedisServer("valkey", settings))
        self.url = self._server.url

    def stop(self, number: int) -> None:
        if number % 2:
            self._server.stop()
        else:
            self._server.kill()

    def start(self) -> None:
        self._server.start()

    async def measure(self, pids: Iterable[int]) -> Values:
        with closing(redis.Redis.from_url(self.url, socket_timeout=5)) as client:
            info: Any = client.info()
            values: Values = {
                "used memory bytes": info["used_memory"],
                "connections": info["connected_clients"] - 1,
                "aof bytes": info.get("aof_current_size", 0),
            }
            values |= measure_keys(client)
        return values


def measure_keys(client: Any) -> Values:
    """The number of keys of each kind, and of their members."""
    names = list(client.scan_iter(count=1_000))
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.type(name)
    kinds = [kind.decode() for kind in pipe.execute()]
    known = [(name, LENGTHS[kind]) for name, kind in zip(names, kinds, strict=True) if kind in LENGTHS]
    for name, command in known:
        pipe.execute_command(command, name)
    keys, members = Counter[str](), Counter[str]()
    for (name, _), count in zip(known, pipe.execute(), strict=True):
        kind = name.partition(b"}:")[2].split(b":")[0].decode()
        keys[kind] += 1
        members[kind] += count
    return {
        **{f"keys of {kind}": float(count) for kind, count in keys.items()},
        **{f"members of {kind}": float(count) for kind, count in members.items()},
    }


STORES = {"sqlite": SoakStore, "postgres": SoakPostgres, "redis": SoakRedis}
