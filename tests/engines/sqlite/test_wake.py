"""Hints on SQLite: the datagram without the version, the version without the datagram, bursts, and foreign sockets."""

import asyncio
import contextlib
import os
import socket
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drumbeat.errors import ConfigError
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.store.sqlite import SqliteStore, wake
from tests.contract.making import HOUR, add, new_job, worker
from tests.contract.test_wake import EVENTS, Ear, Event, listening
from tests.waiting import until


@pytest.fixture
async def other(path: Path, sqlite: SqliteStore) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(path, url="x") as store:
        yield store


@pytest.fixture
def no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake, "VERSION_POLL_S", 3_600)


@pytest.mark.usefixtures("no_version")
@pytest.mark.parametrize("event", EVENTS)
async def test_a_datagram_alone_is_enough(sqlite: SqliteStore, other: SqliteStore, event: Event) -> None:
    steps = event(sqlite)
    await anext(steps)
    async with listening(other) as ear:
        await ear.hears(await anext(steps))


@pytest.mark.usefixtures("no_version")
async def test_the_moment_travels_with_the_datagram(sqlite: SqliteStore, other: SqliteStore) -> None:
    moment = await sqlite.inspect.now() + HOUR
    async with listening(other) as ear:
        await add(sqlite, new_job(run_at=moment + 5), new_job(run_at=moment))
        await until(lambda: ear.heard, what="a hint")
    assert ear.heard == [moment]


@pytest.mark.usefixtures("no_version")
async def test_no_hint_of_a_burst_is_lost(sqlite: SqliteStore, other: SqliteStore) -> None:
    """Each is earlier than the one before: whichever comes last must have been told."""
    moment = await sqlite.inspect.now() + HOUR
    async with listening(other) as ear:
        for number in range(200):
            await add(sqlite, new_job(run_at=moment - number))
        await ear.hears(moment - 199)
    assert len(ear.heard) <= 200


@pytest.mark.usefixtures("no_version")
async def test_a_burst_is_joined(sqlite: SqliteStore, other: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake, "BURST_S", 1.0)  # on a busy machine twenty take their time
    async with listening(other) as ear:
        # The registration of the listener has rung nothing: the first is sent at once, the others at the end of the burst.
        for number in range(20):
            await add(sqlite, new_job(delay=HOUR - number * 60_000_000))
        await until(lambda: len(ear.heard) == 2, what="the two ends of a burst")
    assert ear.heard[1] < ear.heard[0]


async def test_the_version_alone_is_enough(path: Path, sqlite: SqliteStore) -> None:
    """A program that knows no datagrams commits."""
    ear = Ear()
    async with sqlite.wake.listen(Subscriber(ear.hear)):
        stranger = sqlite3.connect(path)
        stranger.execute("INSERT INTO drumbeat_meta (name, value) VALUES ('stranger', 1)")
        stranger.commit()
        stranger.close()
        await until(lambda: ear.heard == [0], what="a hint by data_version")


async def test_an_idle_store_is_quiet(sqlite: SqliteStore) -> None:
    ear = Ear()
    async with sqlite.wake.listen(Subscriber(ear.hear)):
        watched = asyncio.get_running_loop().time() + 4 * wake.VERSION_POLL_S
        await until(lambda: asyncio.get_running_loop().time() > watched, what="four looks")
    assert ear.heard == []


@pytest.mark.usefixtures("no_version")
async def test_a_socket_that_is_full_or_gone_is_passed_over(
    sqlite: SqliteStore, other: SqliteStore, tmp_path: Path
) -> None:
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    deaf.bind(str(tmp_path / "deaf"))
    stuffing = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stuffing.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while stuffing.sendto(b"1", str(tmp_path / "deaf")):
            pass
    await worker(sqlite, wake=str(tmp_path / "deaf"))
    await worker(sqlite, wake=str(tmp_path / "gone"))
    async with listening(other) as ear:
        await add(sqlite, new_job())
        await ear.hears(await sqlite.inspect.now())
    deaf.close()
    stuffing.close()


@pytest.mark.usefixtures("no_version")
async def test_nonsense_in_the_socket_means_look(sqlite: SqliteStore) -> None:
    ear = Ear()
    async with sqlite.wake.listen(Subscriber(ear.hear)) as address:
        assert address is not None
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for text in (b"\xff\xfe", b"-1", b"9" * 60):
            ear.heard.clear()
            sender.sendto(text, address)
            await until(lambda: ear.heard, what="a hint")
            assert ear.heard == [int(text) if text.isdigit() else 0]
        sender.close()


@pytest.mark.usefixtures("no_version")
async def test_a_socket_that_was_full_of_tickets_means_look_at_all_tickets(sqlite: SqliteStore) -> None:
    """What found no room was not sent."""
    heard: list[str] = []
    async with sqlite.wake.listen(Subscriber(on_ticket=lambda id, after: heard.append(id))) as address:
        assert address is not None
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for _ in range(wake.SOCKET_QUEUE_LIMIT):
                sender.sendto(b"ticket", address)
        await until(lambda: "" in heard, what="the hint for all")
    assert heard == ["ticket"] * wake.SOCKET_QUEUE_LIMIT + [""]


async def test_the_socket_is_private_and_goes_with_its_listener(sqlite: SqliteStore) -> None:
    async with sqlite.wake.listen(Subscriber(lambda _: None)) as address:
        assert address is not None
        assert stat.S_IMODE(Path(address).parent.stat().st_mode) == 0o700
        assert Path(address).is_socket()
    assert not Path(address).exists()


async def test_the_socket_of_a_killed_process_is_swept_away_and_a_living_one_stays(
    sqlite: SqliteStore, other: SqliteStore
) -> None:
    async with sqlite.wake.listen(Subscriber(lambda due: None)) as living:
        assert living is not None
        left_behind = Path(living).with_name("1-killed")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
            ear.bind(str(left_behind))
        async with other.wake.listen(Subscriber(lambda due: None)):
            assert not left_behind.exists()
            assert Path(living).exists()


async def test_a_folder_that_others_can_enter_is_refused(
    sqlite: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"drumbeat-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="only this user"):
        async with sqlite.wake.listen(Subscriber(lambda _: None)):
            pass


def test_hints_travel_under_uvloop_too(path: Path) -> None:
    import uvloop

    async def main() -> None:
        async with await SqliteStore.open(path, url="x") as one, await SqliteStore.open(path, url="x") as two:
            async with listening(two) as ear:
                await add(one, new_job())
                await ear.hears(await one.inspect.now())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
