"""Jobs that become signed requests to a real HTTP server."""

import asyncio
import ipaddress
import threading
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate
from typing import Any

import msgspec
import pytest

from drumbeat import Drumbeat, JobHandle, JobState, SkipRetry
from drumbeat.clock import SYSTEM, FakeClock
from drumbeat.errors import ConfigError
from drumbeat.sinks import DeliveryFailed, Message, SinkUnavailable, WebhookSink, verify_webhook
from drumbeat.sinks.addresses import is_public
from tests.servers.web import Receiver, Reply, Request
from tests.waiting import until
from tests.worker.worker_harness import run_worker

SECRET = "a secret of more than sixteen bytes"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def sink(receiver: Receiver, **options: Any) -> WebhookSink:
    return WebhookSink(**{"url": receiver.url, "secret": SECRET, "allow_private": True} | options)  # type: ignore[arg-type]


def message(id: str = "a") -> Message:
    return Message(id=id, key=None, body=b'{"n":1}')


async def sent(sink: WebhookSink, *messages: Message) -> list[Exception | None]:
    outlet = sink.connect(SYSTEM)
    try:
        return await outlet.send(messages or [message()])
    finally:
        await outlet.close()


async def test_a_job_is_posted_once_with_its_id_and_a_signature(app: Drumbeat, receiver: Receiver) -> None:
    notify = app.forward("order.paid", to=sink(receiver, headers={"Authorization": "Bearer abc"}))
    job = await notify.using(key="order:7").enqueue({"number": 7})
    async with run_worker(app):
        await job.result(timeout=10)
    [request] = receiver.requests
    event = msgspec.json.decode(request.body)
    assert (event["id"], event["type"], event["subject"], event["data"]) == (
        job.id,
        "order.paid",
        "order:7",
        {"number": 7},
    )
    assert request.path == "/hook?a=1"
    assert request.headers["Idempotency-Key"] == request.headers["webhook-id"] == job.id
    assert request.headers["Authorization"] == "Bearer abc"
    assert request.headers["Content-Type"].startswith("application/cloudevents+json")
    assert verify_webhook(SECRET, request.headers, request.body)


async def test_a_signature_is_of_this_body_this_secret_and_this_moment(receiver: Receiver) -> None:
    await sent(sink(receiver, secret=["the secret of yesterday", SECRET]))
    [request] = receiver.requests
    headers, body = request.headers, request.body
    assert verify_webhook(SECRET, headers, body)
    assert verify_webhook("the secret of yesterday", headers, body)
    assert not verify_webhook("some other secret, long", headers, body)
    assert not verify_webhook(SECRET, headers, body + b" ")
    assert not verify_webhook(SECRET, {**headers, "webhook-id": "b"}, body)
    later = FakeClock(SYSTEM.now_us() + 3_600_000_000)
    assert not verify_webhook(SECRET, headers, body, clock=later)
    assert not verify_webhook(SECRET, {**headers, "webhook-timestamp": "soon"}, body)
    assert not verify_webhook(SECRET, {}, body)


async def test_the_signature_is_that_of_the_published_example() -> None:
    """The vector of the Standard Webhooks libraries."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    clock = FakeClock(1614265330 * 1_000_000)
    assert verify_webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", headers, b'{"test": 2432232314}', clock=clock)


async def test_connections_are_used_again(receiver: Receiver) -> None:
    answers = await sent(sink(receiver, connections=4), *(message(str(n)) for n in range(200)))
    assert answers == [None] * 200
    assert len({request.client for request in receiver.requests}) <= 4
    assert sorted(request.headers["webhook-id"] for request in receiver.requests) == sorted(map(str, range(200)))


async def test_a_connection_that_was_closed_meanwhile_is_replaced(receiver: Receiver) -> None:
    closed = threading.Event()

    def close_after(request: Request) -> Reply:
        return Reply(headers={} if closed.is_set() else {"Connection": "close"})

    receiver.answer = close_after
    outlet = sink(receiver, connections=1).connect(SYSTEM)
    assert await outlet.send([message("a"), message("b")]) == [None, None]
    closed.set()
    assert await outlet.send([message("c"), message("d")]) == [None, None]
    await outlet.close()
    assert len({request.client for request in receiver.requests}) == 3


@pytest.fixture
async def silent() -> AsyncIterator[tuple[Receiver, list[int]]]:
    """Answers one request of each connection, and closes it at the next one without a word."""
    requests: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b'{"n":1}')
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        requests.append(len(requests))
        await reader.readuntil(b'{"n":1}')
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    receiver = Receiver()
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver, requests


async def test_a_kept_connection_that_ends_without_a_word_says_nothing_of_the_message(
    silent: tuple[Receiver, list[int]],
) -> None:
    receiver, requests = silent
    answers = await sent(sink(receiver, connections=1), *(message(str(n)) for n in range(5)))
    assert answers == [None] * 5
    assert len(requests) == 5


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda request: Reply(status, {"Location": receiver.url})
    [answer] = await sent(sink(receiver))
    assert isinstance(answer, DeliveryFailed) and "redirects are not followed" in str(answer)
    assert len(receiver.requests) == 1


async def test_a_refusal_fails_its_message_alone(app: Drumbeat, receiver: Receiver) -> None:
    receiver.answer = lambda request: Reply(500 if b'"data":3' in request.body else 200)
    notify = app.forward("notify", to=sink(receiver), retries=1, backoff=_quick())
    jobs = await app.enqueue_many([notify.bind(n) for n in range(6)])
    async with run_worker(app):
        await until(lambda: _states(app, jobs, JobState.DEAD, JobState.SUCCEEDED), what="all to end")
    records = [await app.jobs.show(job.id) for job in jobs]
    assert [record.state for record in records] == [JobState.DEAD if n == 3 else JobState.SUCCEEDED for n in range(6)]
    posts = [request.headers["webhook-id"] for request in receiver.requests]
    assert {id: posts.count(id) for id in posts} == {job.id: 2 if n == 3 else 1 for n, job in enumerate(jobs)}
    error = records[3].error
    assert error is not None and "answered 500" in error.message


def _quick() -> Any:
    from drumbeat import Backoff

    return Backoff(base=0.01, cap=0.02)


async def _states(app: Drumbeat, jobs: list[JobHandle[Any]], *states: JobState) -> bool:
    return all([(await app.jobs.show(job.id)).state in states for job in jobs])


async def test_gone_is_given_up_at_once(receiver: Receiver) -> None:
    receiver.answer = lambda request: Reply(410)
    [answer] = await sent(sink(receiver))
    assert isinstance(answer, SkipRetry)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_receiver_may_say_when_to_come_again(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda request: Reply(status, {"Retry-After": "7"})
    [answer] = await sent(sink(receiver))
    assert isinstance(answer, SinkUnavailable) and answer.delay == 7
    receiver.answer = lambda request: Reply(
        status, {"Retry-After": formatdate(SYSTEM.now_us() / 1e6 + 60, usegmt=True)}
    )
    [answer] = await sent(sink(receiver))
    assert isinstance(answer, SinkUnavailable) and answer.delay is not None and 50 < answer.delay <= 60
    receiver.answer = lambda request: Reply(status, {"Retry-After": "soon"})
    [answer] = await sent(sink(receiver))
    assert isinstance(answer, SinkUnavailable) and answer.delay is None


async def test_what_a_receiver_puts_off_is_not_charged_and_comes_when_it_said(
    app: Drumbeat, receiver: Receiver
) -> None:
    receiver.answer = lambda request: Reply(429, {"Retry-After": "1"}) if not receiver.requests else Reply()
    notify = app.forward("notify", to=sink(receiver, connections=1), retries=0)
    jobs = await app.enqueue_many([notify.bind(n) for n in range(5)])
    started = SYSTEM.monotonic()
    async with run_worker(app):
        for job in jobs:
            await job.result(timeout=20)
    assert SYSTEM.monotonic() - started >= 1
    assert len(receiver.requests) == 6
    assert {(await app.jobs.show(job.id)).failures for job in jobs} == {0}


async def test_a_receiver_that_is_down_is_waited_for_without_charge(app: Drumbeat, receiver: Receiver) -> None:
    receiver.stop()
    notify = app.forward("notify", to=sink(receiver), retries=0)
    jobs = await app.enqueue_many([notify.bind(n) for n in range(20)])
    async with run_worker(app):
        await until(lambda: _all_tried(app, jobs), what="all to be tried")
        receiver.start()
        for job in jobs:
            await job.result(timeout=20)
    assert {(await app.jobs.show(job.id)).failures for job in jobs} == {0}
    assert len(receiver.requests) == 20


async def _all_tried(app: Drumbeat, jobs: list[JobHandle[Any]]) -> bool:
    return all([(await app.jobs.show(job.id)).token for job in jobs])


async def test_a_receiver_that_does_not_answer_in_time_fails_the_message(receiver: Receiver) -> None:
    gate = threading.Event()

    def wait(request: Request) -> Reply:
        gate.wait(10)
        return Reply()

    receiver.answer = wait
    try:
        [answer] = await sent(sink(receiver, timeout=0.1))
    finally:
        gate.set()
    assert isinstance(answer, DeliveryFailed) and str(answer) == "no answer within 100ms"


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
    ],
)
async def test_what_is_no_http_is_a_failure(raw: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b'{"n":1}')
        writer.write(raw)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    receiver = Receiver()
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        [answer] = await sent(sink(receiver))
    assert isinstance(answer, DeliveryFailed)


PRIVATE = [
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
    *("64:ff9b::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::", "fec0::1"),
    # What some versions of Python take for public.
    *("192.0.0.192", "192.0.0.8", "192.0.0.170", "192.88.99.1", "198.18.0.1", "240.0.0.1", "3fff::1", "3fff:fff::1"),
    *(
        "64:ff9b:1::1",
        "2001:2::1",
        "2001:db8::1",
        "100::1",
        "5f00::1",
        "::ffff:192.0.0.192",
        "64:ff9b::c000:c0",
        "4000::1",
    ),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_only_some_can_reach_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2a00:1450::1", "192.0.1.1"],
)
def test_others_are(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "169.254.169.254", "[::ffff:127.0.0.1]"])
def test_a_private_address_is_refused_where_it_is_written(host: str) -> None:
    with pytest.raises(ConfigError, match="private address"):
        WebhookSink(url=f"http://{host}/", secret=SECRET)


@pytest.mark.parametrize("host", ["0177.0.0.1", "2130706433", "127.1", "localhost."])
async def test_a_name_that_leads_to_a_private_address_is_not_asked(receiver: Receiver, host: str) -> None:
    """Looked up when it is sent; what some libraries read as 127.0.0.1 is no exception."""
    hidden = WebhookSink(url=f"http://{host}:{receiver.port}/", secret=SECRET)
    [answer] = await sent(hidden)
    assert isinstance(answer, DeliveryFailed | SinkUnavailable)
    assert receiver.requests == []


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is public at the first look and private at the second must not lead inside."""
    loop = asyncio.get_running_loop()
    looked_up: list[str] = []
    real = loop.getaddrinfo

    async def rebinding(host: Any, port: Any, **more: Any) -> Any:
        looked_up.append(host)
        return await real(
            "192.0.2.1" if host == "rebinding.example" and len(looked_up) > 1 else "127.0.0.1", port, **more
        )

    monkeypatch.setattr(loop, "getaddrinfo", rebinding)
    named = WebhookSink(
        url=f"http://rebinding.example:{receiver.port}/", secret=SECRET, allow_private=True, connections=1
    )
    assert await sent(named) == [None]
    assert looked_up.count("rebinding.example") == 1
    assert receiver.requests[0].headers["Host"] == f"rebinding.example:{receiver.port}"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "ftp://example.com/"}, "url must be one like"),
        ({"url": "https://"}, "url must be one like"),
        ({"url": "https://example.com:99999/"}, "url must be one like"),
        ({"url": "https://example.com/a b"}, "url must be one like"),
        ({"url": "https://example.com/\r\nX: y"}, "url must be one like"),
        ({"url": "https://user:pass@example.com/"}, "no user and password"),
        ({"secret": "short"}, "at least 16 bytes"),
        ({"secret": []}, "at least 16 bytes"),
        ({"secret": "whsec_!"}, "base64"),
        ({"headers": {"X": "a\r\nY: b"}}, "printable ASCII"),
        ({"headers": {"X\r\n": "a"}}, "headers must not have"),
        ({"headers": {"Host": "a"}}, "headers must not have"),
        ({"headers": {"Webhook-Id": "a"}}, "headers must not have"),
        ({"connections": 0}, "connections must be"),
        ({"timeout": 0}, "timeout must be more than 0"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_written(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        WebhookSink(**{"url": "https://example.com/", "secret": SECRET} | options)


def test_a_sink_does_not_show_its_secrets() -> None:
    shown = repr(WebhookSink(url="https://example.com/hook?key=abc", secret=SECRET, headers={"Authorization": "xyz"}))
    assert shown == "WebhookSink(url='https://example.com/hook')"
