"""The API as a stranger uses it who has read nothing but its document: schemathesis against a real server, on SQLite.

What it sends is half sense, half nonsense. No answer is a 5xx, every answer is as the document says, every refusal is a
problem+json. Few examples for each operation, the same in each run.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from drumbeat import Drumbeat
from drumbeat.admin.audit import new_act
from drumbeat.core.job import OutcomeKind
from drumbeat.core.lock import NewTicket
from drumbeat.ids import InstanceId
from drumbeat.web.openapi import build_document
from drumbeat.web.server import DashboardServer, listen, url_of
from tests.contract import making
from tests.contract.flows import DIAMOND, add_flow
from tests.waiting import until_sync

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HEADERS = {"Sec-Fetch-Site": "same-origin"}
FEW = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

# Without the stream of events, which has no end.
schema = schemathesis.openapi.from_dict(build_document()).exclude(path="/api/v1/events")


class Served:
    """A dashboard on a port of its own, in a thread of its own, on a store that has some of everything."""

    def __init__(self, url: str) -> None:
        self._store_url = url
        self._server: DashboardServer | None = None
        self.url = ""
        self.known: dict[str, str] = {}
        """A name or id that there is, by the noun in the path."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with Drumbeat(self._store_url, name="shop", dashboard="127.0.0.1:0") as app:

            @app.task(queue="mail")
            async def send_mail(to: str, big: int = 0) -> None: ...

            await self._fill(app)
            with listen(app.settings) as listener:
                self.url = url_of(listener).rstrip("/")
                self._server = DashboardServer(app.dashboard(access="open"))
                await self._server.serve(sockets=[listener])

    async def _fill(self, app: Drumbeat) -> None:
        store, task = await app._internals.store(), app._internals.registry["send_mail"]
        hand = await making.worker(store, queues=("mail",), tasks=app._internals.registry.signatures())
        for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.RETRY):
            await task.enqueue("ada")
            await self._end(app, hand, kind)
        await app.schedules.create("send_mail", name="nightly", cron="0 3 * * *", args={"to": "ada"})
        await store.locks.acquire(NewTicket(id="ticket", lock="door", lease=600_000_000, owner="ada"))
        letter = (await app.dead.list())[0].id
        waiting = (await task.using(delay=3600).enqueue("bob")).id
        flow, _ = await add_flow(store, DIAMOND, queue="flows")
        act = await app.audit.begin(new_act(who="ada", verb="dead.replay", target="all"))
        self.known = {
            "jobs": waiting,
            "dead": letter,
            "queues": "mail",
            "tasks": "send_mail",
            "schedules": "nightly",
            "instances": hand,
            "locks": "door",
            "audit": act.id,
            "workflows": flow,
        }

    async def _end(self, app: Drumbeat, hand: InstanceId, kind: OutcomeKind) -> None:
        store = await app._internals.store()
        jobs = await making.claim(store, hand, "mail")
        await making.report(store, hand, *(making.outcome(job, kind, delay=10**12) for job in jobs))

    def is_up(self) -> bool:
        return self._server is not None and self._server.started

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(f"sqlite:///{tmp_path_factory.mktemp('fuzz') / 'fuzz.db'}")
    thread = threading.Thread(target=served.run, name="served dashboard")
    thread.start()
    try:
        until_sync(lambda: served.is_up() or not thread.is_alive(), what="the server")
        assert served.is_up()
        yield served
    finally:
        served.stop()
        thread.join(timeout=10)


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


@schema.parametrize()
@FEW
def test_every_answer_is_as_the_document_says(case: Any, served: Served, session: requests.Session) -> None:
    checked(case.call_and_validate(base_url=served.url, session=session, headers=HEADERS, checks=CHECKS))
    if case.path_parameters:
        # Hardly anything that is made up exists: once more with what does.
        known = served.known[case.operation.path.split("/")[3]]
        case.path_parameters = dict.fromkeys(case.path_parameters, known)
        checked(case.call_and_validate(base_url=served.url, session=session, headers=HEADERS, checks=CHECKS))


def checked(response: Any) -> None:
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == ["application/problem+json"]
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["detail"]


def test_a_paced_act_is_answered_before_it_is_done_and_ends_in_the_audit(served: Served) -> None:
    with httpx.Client(base_url=f"{served.url}/api/v1", headers=HEADERS) as client:
        call = {"task": "send_mail", "args": {"to": "ada"}, "key": "paced", "delay": "1h"}
        for _ in range(12):
            client.post("/jobs", json=call)
        body = {"action": "run_now", "filter": {"key": "paced", "task": "send_mail"}, "rate": 4}
        answer = client.post("/jobs/bulk", json=body)
        assert (answer.status_code, answer.json()["matched"], answer.json()["in_background"]) == (202, 12, True)
        assert client.get("/jobs/counts", params={"key": "paced"}).json()["scheduled"] > 0

        def ended() -> Any:
            [act] = client.get("/audit", params={"verb": "jobs.run_now", "limit": 1}).json()["items"]
            return act["done_at"] and (act["outcome"], act["touched"])

        assert until_sync(ended, what="the end of the act") == ("done", 12)
        assert client.get("/jobs/counts", params={"key": "paced"}).json()["ready"] == 12


def test_the_body_of_an_answer_does_not_wait_until_its_head_is_acknowledged() -> None:
    with listen(Drumbeat(dashboard="127.0.0.1:0").settings) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


HOSTILE = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe",
    b"\x00",
    b'{"reason": 5}',
    b'{"reason": "' + b"x" * 100_000 + b'"}',
    b'{"task": "\\u0000", "name": "\\ud800"}',
    b'{"task": "send_mail", "args": {"to": "\\u0000"}}',
    b'{"task": "send_mail", "args": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"task": "send_mail", "args": {"to": "a", "big": 1e999}}',
    b'{"action": "cancel", "ids": [1, null]}',
    b'{"ids": ["../../etc/passwd"]}',
    b'{"all": true, "rate": 1e-300}',
    b'{"all": true, "rate": NaN}',
    b"[" * 1_000_000,
    b" " * 2_000_000,
]


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: repr(body[:30]))
def test_a_hostile_body_is_refused_as_a_problem_by_every_write(served: Served, body: bytes) -> None:
    headers = HEADERS | {"Content-Type": "application/json"}
    with httpx.Client(base_url=served.url, headers=headers) as client:
        for path, methods in build_document()["paths"].items():
            for method in methods.keys() & {"post", "put"}:
                address = path.replace("{id}", "nobody").replace("{name}", "nobody")
                answer = client.request(method, address, content=body)
                assert 400 <= answer.status_code < 500, (method, path, answer.text)
                assert answer.headers["content-type"] == "application/problem+json"
