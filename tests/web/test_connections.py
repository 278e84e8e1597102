"""Who says nothing, or does not read, does not keep others from being answered. Real sockets, few of them."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import NewJob
from drumbeat.ids import new_job_id
from drumbeat.web import Dashboard
from drumbeat.web.connection_guard import ConnectionLimits
from tests.cli.command import build_environment
from tests.waiting import until, within
from tests.web.live_server import EVENTS, serve_dashboard

HEAD = b"GET /api/v1/counts HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(f"sqlite:///{tmp_path}/shop.db") as app:
        yield app


def limits(**given: Any) -> ConnectionLimits:
    return ConnectionLimits(**({"connections": 16, "per_address": 8} | given))


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def connect(address: str, source: str = "127.0.0.1") -> socket.socket:
    """A plain connection, whose end can be waited for on the loop."""
    opened = socket.create_connection(("127.0.0.1", port_of(address)), timeout=5, source_address=(source, 0))
    opened.setblocking(False)
    return opened


async def is_closed(connection: socket.socket) -> bool:
    """What comes is read; whether nothing more can."""
    try:
        return connection.recv(65_536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def answered(address: str, source: str = "127.0.0.1") -> int:
    transport = httpx.AsyncHTTPTransport(local_address=source)
    async with httpx.AsyncClient(transport=transport, base_url=address, timeout=5) as browser:
        return (await browser.get("/api/v1/status")).status_code


async def test_a_connection_that_says_nothing_is_dropped(board: Dashboard) -> None:
    async with serve_dashboard(board, limits(head_timeout=0.3)) as (address, server):
        with connect(address) as silent:
            await until(lambda: len(server.guard) == 1)
            await until(lambda: is_closed(silent), deadline=5, what="the end of a silent connection")
        await until(lambda: len(server.guard) == 0)


async def test_a_head_that_comes_byte_by_byte_is_not_waited_for(board: Dashboard) -> None:
    async with serve_dashboard(board, limits(head_timeout=0.5)) as (address, _):
        with connect(address) as slow:
            sent = iter(HEAD + b"X-A: " + b"a" * 100_000)

            async def is_over() -> bool:
                try:
                    slow.send(bytes([next(sent)]))
                except OSError:
                    return True
                return await is_closed(slow)

            with within(5.0):
                await until(is_over, deadline=5, what="the end of a slow head")


async def test_after_an_answer_the_next_head_has_its_time_again(board: Dashboard) -> None:
    async with serve_dashboard(board, limits(head_timeout=0.5)) as (address, _), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(address))
        for _ in range(3):
            writer.write(b"GET /static/none HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 404")
        writer.write(b"G")
        assert await reader.read() == b""
        writer.close()


async def test_who_says_nothing_makes_way_for_who_does(board: Dashboard) -> None:
    async with serve_dashboard(board, limits(connections=8, per_address=8)) as (address, server), asyncio.timeout(20):
        with ExitStack() as stack:
            silent = [stack.enter_context(connect(address)) for _ in range(30)]
            for _ in range(10):
                assert await answered(address) == 200
            assert len(server.guard) <= 8
            assert [await is_closed(each) for each in silent[:20]] == [True] * 20


async def test_one_address_cannot_take_the_place_of_others_with_what_it_keeps_busy(board: Dashboard) -> None:
    async with serve_dashboard(board, limits(connections=8, per_address=4)) as (address, server), asyncio.timeout(20):
        board.state.streams.set_limits(8, 8)
        with ExitStack() as stack:
            for _ in range(4):
                busy = stack.enter_context(connect(address, "127.0.0.2"))
                busy.send(f"GET {EVENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            await until(lambda: len(board.state.streams) == 4)
            refused = stack.enter_context(connect(address, "127.0.0.2"))
            assert (await asyncio.get_running_loop().sock_recv(refused, 100)).startswith(b"HTTP/1.1 503")
            assert await answered(address) == 200
            assert len(board.state.streams) == 4
        await until(lambda: len(server.guard) == 0)
        assert await answered(address, "127.0.0.2") == 200


async def test_a_client_that_does_not_read_is_dropped(app: Drumbeat, board: Dashboard) -> None:
    store = await app._internals.store()
    args = '{"text": "' + "x" * 16_000 + '"}'
    new = [NewJob(id=new_job_id(), task="greet", queue="mail", args=args, signature="s") for _ in range(150)]
    await store.jobs.add(new)
    async with serve_dashboard(board, limits(write_timeout=0.5)) as (address, server), asyncio.timeout(20):
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(("127.0.0.1", port_of(address)))
            deaf.send(b"GET /jobs/export HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await until(lambda: len(server.guard) == 1)
            await until(lambda: len(server.guard) == 0, deadline=10, what="the end of a client that does not read")
            assert await answered(address) == 200
        # Somebody who reads gets all of it.
        async with httpx.AsyncClient(base_url=address) as browser:
            assert len((await browser.get("/jobs/export")).text.splitlines()) == 150


async def test_where_it_is_mounted_a_client_that_does_not_read_is_let_go(
    board: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drumbeat.web.asgi.SEND_TIMEOUT", 0.2)
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "method": "GET",
        "path": EVENTS, "raw_path": EVENTS.encode(), "root_path": "", "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 50_000), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    never = asyncio.Event()
    seen: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            seen.append(len(board.state.streams))
            await never.wait()

    async def receive() -> Any:
        await never.wait()

    with within(5.0), pytest.raises(Exception):  # noqa: B017 - whatever the server should take for a broken answer
        await board(scope, receive, send)
    assert seen == [1]
    assert len(board.state.streams) == 0


@contextmanager
def few_descriptors(folder: Path, number: int) -> Any:
    """`drumbeat dashboard` in a process that may have only so many files open."""
    command = f"ulimit -n {number}; exec {sys.executable} -m drumbeat dashboard --port 0"
    environment = build_environment() | {"DRUMBEAT_URL": f"sqlite:///{folder}/shop.db"}
    with Popen(["bash", "-c", command], cwd=folder, env=environment, stdout=PIPE, stderr=DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1].rstrip("/")
        finally:
            process.kill()


async def test_others_are_answered_beside_more_silent_connections_than_there_are_descriptors(tmp_path: Path) -> None:
    with few_descriptors(tmp_path, 128) as address, ExitStack() as stack:
        silent = [stack.enter_context(connect(address)) for _ in range(140)]
        with within(15.0):
            for _ in range(3):
                assert await answered(address) == 200
                silent += [stack.enter_context(connect(address)) for _ in range(20)]
            assert await answered(address, "127.0.0.2") == 200
        streams = [stack.enter_context(connect(address)) for _ in range(120)]
        for stream in streams:
            stream.send(f"GET {EVENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        with within(15.0):
            assert await answered(address, "127.0.0.2") == 200
