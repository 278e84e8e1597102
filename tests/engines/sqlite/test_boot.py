"""Which start of the machine it is, on each kind of system; and what it takes to have something on disk there."""

import os
import struct
import sys
from pathlib import Path

import pytest

from drumbeat.store.sqlite.boot import boot_id, find_boot_id
from drumbeat.store.sqlite.fsync_thread import fsync_file

MACOS = {
    "kern.bootsessionuuid": b"8E2C9B9E-4A1B-4B52-9C39-0F6D0A0E4C11\0",
    "kern.boottime": struct.pack("@ql", 1_700_000_000, 5),
}


def find_id(files: dict[str, str], sysctls: dict[str, bytes]) -> str:
    return find_boot_id(lambda path: files.get(path, ""), lambda name: sysctls.get(name, b""))


def test_each_system_is_asked_in_its_own_way() -> None:
    linux = {"/proc/sys/kernel/random/boot_id": "c3a9\n"}
    assert find_id(linux, {}) == "c3a9"
    assert find_id({}, MACOS) == "8E2C9B9E-4A1B-4B52-9C39-0F6D0A0E4C11"
    assert find_id({}, {"kern.boot_id": b"0fd1\0"}) == "0fd1"
    assert find_id({}, {}) == ""


def test_where_there_is_only_the_time_of_the_start_another_start_is_another_id() -> None:
    def at(second: int) -> str:
        return find_id({}, {"kern.boottime": struct.pack("@ql", second, 5)})

    assert at(1_700_000_000) == at(1_700_000_000) != at(1_700_000_777)
    assert at(1_700_000_000) != ""


def test_this_system_knows_its_start() -> None:
    assert boot_id() == boot_id() != "" or sys.platform not in {"linux", "darwin"}


def test_where_there_is_a_full_sync_it_is_used(path: Path) -> None:
    calls: list[tuple[int, int]] = []
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    fsync_file(file, full=51, control=lambda *given: calls.append(given))
    assert calls == [(file, 51)]
    os.close(file)


def test_a_file_system_without_a_full_sync_has_the_plain_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)

    def refuse(file: int, command: int) -> None:
        raise OSError(25, "Inappropriate ioctl for device")

    fsync_file(7, full=51, control=refuse)
    assert synced == [7]
