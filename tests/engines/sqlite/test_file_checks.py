"""Files that cannot be a store, files that belong to another version, and disks without room."""

import asyncio
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from drumbeat.errors import ConfigError, SchemaOutOfDate, StoreFull
from drumbeat.redaction import mask_url
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.store.sqlite import SqliteStore, file_checks
from drumbeat.store.sqlite.schema import LATEST_VERSION
from drumbeat.store.urls import open_store, parse
from tests.contract.making import claim, new_job, worker

MOUNTS = """\
/dev/vda / ext4 rw 0 0
proc /proc proc rw 0 0
server:/export /mnt/share nfs4 rw 0 0
//box/public /mnt/my\\040files cifs rw 0 0
/dev/vdb /mnt/share/local xfs rw 0 0
host:/home /mnt/remote fuse.sshfs rw 0 0
tmpfs /mnt/hidden tmpfs rw 0 0
server:/other /mnt/hidden nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/home/ada", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/down", "nfs4"),
        ("/mnt/share/local/x", "xfs"),
        ("/mnt/shared", "ext4"),
        ("/mnt/my files/x", "cifs"),
        ("/mnt/remote", "fuse.sshfs"),
        ("/mnt/hidden", "nfs"),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_its_nearest_mount(folder: str, kind: str) -> None:
    assert file_checks.find_file_system(Path(folder), MOUNTS) == kind


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path.resolve()} nfs4 rw 0 0\n"
    with pytest.raises(ConfigError, match=r"network file system \(nfs4\)") as caught:
        file_checks.check_path(tmp_path / "x.db", mounts=mounts)
    assert "\n" not in str(caught.value)
    file_checks.check_path(tmp_path / "x.db", mounts="/dev/vda / ext4 rw 0 0\n")


async def open_refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        await open_store(f"sqlite:///{path}")
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    return message


async def test_paths_that_cannot_be_used_are_refused_in_one_line(tmp_path: Path) -> None:
    assert "is a folder" in await open_refused(tmp_path)
    assert "does not exist" in await open_refused(tmp_path / "missing" / "x.db")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in await open_refused(tmp_path / "pipe")
    (tmp_path / "text.db").write_text("hello " * 1_000)
    assert "is not a SQLite database" in await open_refused(tmp_path / "text.db")
    assert (tmp_path / "text.db").read_text() == "hello " * 1_000


async def test_unwritable_paths_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.db").touch()
    # Tests may run as root, who may write everywhere.
    allowed = {tmp_path}
    monkeypatch.setattr(os, "access", lambda path, mode: path in allowed)
    assert "cannot be read and written" in await open_refused(tmp_path / "x.db")
    allowed.clear()
    assert "cannot be written" in await open_refused(tmp_path / "y.db")


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    async with await open_store(f"sqlite:///{path}") as store:
        assert (await store.jobs.add([new_job()]))[0].created


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o000])
async def test_what_is_created_can_be_read_by_its_user_alone(path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        async with (
            await open_store(f"sqlite:///{path}") as store,
            store.wake.listen(Subscriber(lambda due: None)) as address,
        ):
            await store.jobs.add([new_job()])
            files = [Path(f"{path}{end}") for end in ("", "-wal", "-shm", "-lock")]
            assert {file.name: oct(file.stat().st_mode & 0o777) for file in files} == {
                file.name: "0o600" for file in files
            }
            assert address is not None and oct(Path(address).parent.stat().st_mode & 0o777) == "0o700"
    finally:
        os.umask(before)


async def test_a_file_that_a_group_shares_is_shared_with_all_that_belongs_to_it(path: Path) -> None:
    path.touch()
    path.chmod(0o660)
    async with await open_store(f"sqlite:///{path}") as store:
        await store.jobs.add([new_job()])
        files = [Path(f"{path}{end}") for end in ("", "-wal", "-shm", "-lock")]
        assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o660"}


async def test_strangers_tables_are_left_alone(path: Path) -> None:
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
    raw.execute("INSERT INTO customers VALUES (42)")
    raw.commit()
    async with await open_store(f"sqlite:///{path}") as store:
        await store.jobs.add([new_job()])
    assert raw.execute("SELECT id FROM customers").fetchall() == [(42,)]
    raw.close()


async def test_namespaces_share_a_file_but_no_jobs(path: Path) -> None:
    async with (
        await open_store(f"sqlite:///{path}", namespace="one") as one,
        await open_store(f"sqlite:///{path}", namespace="two") as two,
    ):
        await one.jobs.add([new_job()])
        assert await claim(two, await worker(two)) == []
        assert len(await claim(one, await worker(one))) == 1
    tables = [name for (name,) in sqlite3.connect(path).execute("SELECT name FROM sqlite_schema")]
    assert not [name for name in tables if "drumbeat" in name]
    with pytest.raises(ConfigError):
        await open_store(f"sqlite:///{path}", namespace="no; DROP TABLE")


async def set_versions(path: Path, version: int, oldest_code: int) -> None:
    async with await open_store(f"sqlite:///{path}"):
        pass
    raw = sqlite3.connect(path)
    raw.execute("UPDATE drumbeat_meta SET value = ? WHERE name = 'version'", (version,))
    raw.execute("UPDATE drumbeat_meta SET value = ? WHERE name = 'oldest_code'", (oldest_code,))
    raw.commit()
    raw.close()


async def test_a_newer_schema_that_this_code_can_still_use_is_used(path: Path) -> None:
    await set_versions(path, LATEST_VERSION + 1, 1)
    async with await open_store(f"sqlite:///{path}") as store:
        assert (await store.jobs.add([new_job()]))[0].created
    stored = dict(sqlite3.connect(path).execute("SELECT name, value FROM drumbeat_meta WHERE name NOT LIKE 'token%'"))
    assert stored == {"version": LATEST_VERSION + 1, "oldest_code": 1}


async def test_a_schema_beyond_this_code_is_refused(path: Path) -> None:
    await set_versions(path, LATEST_VERSION + 2, LATEST_VERSION + 1)
    with pytest.raises(SchemaOutOfDate) as caught:
        await open_store(f"sqlite:///{path}")
    assert caught.value.found == LATEST_VERSION + 2


async def test_enqueue_is_refused_without_room_while_the_rest_goes_on(path: Path) -> None:
    async with await open_store(f"sqlite:///{path}") as store:
        await store.jobs.add([new_job()])
    free = shutil.disk_usage(path.parent).free
    async with await SqliteStore.open(path, url="sqlite:///x", min_free_bytes=free * 10) as store:
        with pytest.raises(StoreFull, match="MB"):
            await store.jobs.add([new_job()])
        assert len(await claim(store, await worker(store))) == 1


async def test_a_disk_that_sqlite_finds_full_is_told_as_full_and_spoils_nothing(path: Path) -> None:
    async with await SqliteStore.open(path, url="sqlite:///x") as store:
        await store.jobs.add([new_job()])
        pages = store._parts.writer._handler.db
        assert pages is not None
        pages.run("PRAGMA max_page_count = 1")
        with pytest.raises(StoreFull):
            await store.jobs.add([new_job(args='"' + "x" * 200_000 + '"')])
        pages.run("PRAGMA max_page_count = 1000000")
        assert (await store.jobs.add([new_job()]))[0].created
        assert len(await claim(store, await worker(store))) == 2


def test_urls_are_understood_once_and_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative, absolute = parse("sqlite:///sub/x.db"), parse(f"sqlite:///{tmp_path}/sub/x.db")
    assert relative == absolute
    assert relative.path == tmp_path / "sub" / "x.db"
    assert relative.text == f"sqlite:///{tmp_path}/sub/x.db"
    assert parse("sqlite:///with%20space.db").path == tmp_path / "with space.db"
    assert parse("sqlite+aiosqlite:///sub/x.db") == relative
    assert parse(parse("sqlite:///with%20space.db").text) == parse("sqlite:///with%20space.db")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/x.db",
        "sqlite:x.db",
        "mysql://h/d",
        "sqlite:///x.db?mode=ro",
    ],
)
def test_wrong_urls_are_refused_with_the_allowed_forms(url: str) -> None:
    with pytest.raises(ConfigError, match="sqlite:///"):
        parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///:memory:",
        "sqlite://:memory:",
        "sqlite:///%3Amemory%3A",
        "sqlite:////data/:memory:",
        "sqlite:///file::memory:?cache=shared",
        "sqlite:///file:jobs?mode=memory&cache=shared",
        "sqlite:///jobs.db?mode=memory",
    ],
)
def test_a_database_in_memory_is_refused_with_what_to_use_instead(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"in memory.*use a file, in a temporary folder for tests"):
        parse(url)
    with pytest.raises(ConfigError, match="in memory"):
        asyncio.run(open_store(url))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@host:5432/db", "postgresql://ada:•••@host:5432/db"),
        ("postgresql://ada:se@cret@host/db", "postgresql://ada:•••@host/db"),
        ("redis://:secret@host", "redis://:•••@host"),
        ("sqlite:///x.db", "sqlite:///x.db"),
        ("postgresql://ada@host/db", "postgresql://ada@host/db"),
        ("postgresql://ada:secret@[broken/db", "postgresql://ada:•••@[broken/db"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_a_disk_that_becomes_full_is_noticed_within_a_second(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = file_checks.DiskSpaceGuard(path, min_free_bytes=1)
    guard.check()
    found = os.statvfs(path.parent)
    full = os.statvfs_result((*found[:4], 0, *found[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    guard.check()
    monkeypatch.setattr(guard, "_checked_at", guard._checked_at - 1)
    with pytest.raises(StoreFull):
        guard.check()
