"""PostgreSQL for the bench: one server of its own for a whole run, and a fresh database for each measure.

The binaries come from the wheel, as in the tests; fsync and synchronous_commit are on, and everything else is the same for
all contenders. A contender's tables are made once, in a template that its databases are copied from.
"""

import asyncio
import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.apps import FOLDER_NAME, URL_NAME
from bench.contender import Contender
from bench.ledger import ENVIRONMENT_NAME, Ledger
from bench.processes import ROOT, TICKS_PER_SECOND, ChildFailed, cpu_ticks, family, python_path
from bench.sites import Site

SETTINGS = {
    "max_connections": "200",
    # The database in front of each line: statements are counted from the log.
    "log_line_prefix": "%d|",
}
TOLD_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")


class PostgresSite(Site):
    """Use it with `with`."""

    def __init__(self, parent: Path | None) -> None:
        super().__init__(parent)
        # Imported here: a run on SQLite alone needs neither asyncpg nor the wheel.
        from tests.servers.postgres import PostgresServer

        self._server = PostgresServer(18, SETTINGS)
        self._stack = ExitStack()
        self._templates: set[str] = set()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def facts(self) -> dict[str, str]:
        version = self._execute("SHOW server_version")[0][0]
        told = [f"{name} {self._execute(f'SHOW {name}')[0][0]}" for name in TOLD_SETTINGS]
        return {"PostgreSQL": f"{version} ({', '.join(told)})"}

    @contextmanager
    def prepare(self, contender: Contender, folder: Path) -> Iterator[dict[str, str]]:
        template = f"template_{contender.name.replace('-', '_')}"
        if template not in self._templates:
            self._make_template(template, contender, folder)
        name = f"bench_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        # What the last measure left behind is written now, and not while this one runs.
        self._execute("CHECKPOINT")
        try:
            yield {**contender.environment(folder), **self._addresses(contender, name)}
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def count_operations(self, environment: dict[str, str]) -> Iterator[Callable[[], dict[str, int]]]:
        database = environment[URL_NAME].rpartition("/")[2]
        line = re.compile(rf"^{database}\|LOG:  (?:statement|execute) ", re.MULTILINE)
        self._log_statements("all")
        try:
            yield lambda: {"idle_statements": len(line.findall(self._server.log))}
        finally:
            self._log_statements("none")

    def server_cpu(self, environment: dict[str, str]) -> float:
        pid = int(self._execute("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)")[0][0])
        while True:
            try:
                # The postmaster's own fields hold what its ended backends have used.
                members = family(pid)
                ticks = sum(cpu_ticks(member, ended_children=True) for member in members)
            except FileNotFoundError:
                continue  # a backend has just ended
            if members == family(pid):  # else one may have been counted twice
                return ticks / TICKS_PER_SECOND

    @contextmanager
    def snapshot(self, environment: dict[str, str]) -> Iterator[None]:
        import psycopg

        with psycopg.connect(environment[URL_NAME]) as other:
            other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            other.execute("SELECT count(*) FROM pg_class")
            yield

    def _make_template(self, name: str, contender: Contender, folder: Path) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._execute(f"CREATE DATABASE {name}")
        # Some libraries load the program with the handlers for this; it wants a ledger.
        ledger = folder / "ledger of nobody"
        Ledger.create(ledger, 1)
        places = {FOLDER_NAME: str(folder), ENVIRONMENT_NAME: str(ledger), "PYTHONPATH": python_path()}
        environment = {**os.environ, **places, **contender.environment(folder), **self._addresses(contender, name)}
        for command in contender.preparations():
            made = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                said = (made.stderr or made.stdout).strip().splitlines()
                raise ChildFailed(f"its tables could not be made: {said[-1] if said else made.returncode}")
        self._templates.add(name)

    def _addresses(self, contender: Contender, database: str) -> dict[str, str]:
        url = self._server.url_of(database)
        return {URL_NAME: url} | dict.fromkeys(contender.url_names, url)

    def _log_statements(self, which: str) -> None:
        self._execute(f"ALTER SYSTEM SET log_statement = '{which}'")
        self._execute("SELECT pg_reload_conf()")

    def _execute(self, statement: str) -> list[Any]:
        return asyncio.run(self._server.execute(statement))
