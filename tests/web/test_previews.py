"""A list has the beginning of long texts only, and costs as much as it shows: one job may have 256 KiB of arguments."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import Failure, NewJob, OutcomeKind
from drumbeat.ids import new_job_id
from drumbeat.web.api.records import MAX_PREVIEW_CHARS
from tests.contract.making import HOUR, claimed_one, end, worker

FULL = bool(os.environ.get("DRUMBEAT_FULL"))
MANY = 500 if FULL else 100
LARGEST = 262_000
JOBS, DEAD = "/api/v1/jobs", "/api/v1/dead"


def large(n: int) -> str:
    return json.dumps({"to": "ada", "n": n, "password": "hunter2", "text": 'x"é' * (LARGEST // 5)}, ensure_ascii=False)


async def queue_many(app: Drumbeat, count: int = MANY) -> None:
    store = await app._internals.store()
    for first in range(0, count, 50):
        await store.jobs.add(
            [
                NewJob(
                    id=new_job_id(),
                    task="send_mail",
                    queue="mail",
                    args=large(n),
                    signature="s",
                    priority=5,
                    delay=HOUR,
                )
                for n in range(first, min(first + 50, count))
            ]
        )


class Blocks:
    """The longest time that the loop was held up."""

    longest = 0.0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        self._watches = True
        self._look(time.perf_counter())
        try:
            yield
        finally:
            self._watches = False

    def _look(self, last: float) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - last)
        if self._watches:
            asyncio.get_running_loop().call_soon(self._look, now)


async def test_a_list_of_the_largest_jobs_is_small_and_quick_and_holds_up_nobody(
    app: Drumbeat, api: httpx.AsyncClient
) -> None:
    await queue_many(app)
    await api.get(JOBS, params={"limit": 1})
    for path in (JOBS, "/jobs"):
        blocks, began = Blocks(), time.perf_counter()
        async with blocks.watched():
            answer = await api.get(path, params={"limit": MANY})
        took = time.perf_counter() - began
        assert answer.status_code == 200
        assert len(answer.content) < 1_000_000 * MANY / 500 + 300_000
        assert "hunter2" not in answer.text
        # It was 96 ms for each job. Alone on a machine it is a tenth of a second for 500; here others run as well.
        assert took < 2.0
        assert blocks.longest < 0.5
        print(
            f"{path}: {len(answer.content):,} bytes, {took * 1_000:.0f} ms, loop held up {blocks.longest * 1_000:.0f} ms"
        )


@pytest.fixture
async def ended(app: Drumbeat) -> dict[str, str]:
    """Jobs with long texts that have ended: a succeeded and a dead one."""
    store = await app._internals.store()
    instance = await worker(store)
    done = await claimed_one(store, instance, task="send_mail", args=large(1))
    await end(store, instance, done, OutcomeKind.SUCCEEDED, result=large(2))
    dead = await claimed_one(store, instance, task="send_mail", args=large(1))
    url = "postgresql://ada:hun/ter2@db/app"
    error = Failure("ValueError", f"no answer from {url}" + "m" * 3_000, "Traceback\n" + f"{url} line\n" * 300)
    await end(store, instance, dead, OutcomeKind.DEAD, error=error)
    return {"done": done.id, "dead": dead.id}


@pytest.mark.parametrize(("path", "which"), [(JOBS, "done"), (JOBS, "dead"), (DEAD, "dead")])
async def test_a_list_says_what_it_has_cut_and_a_job_has_all_of_it(
    api: httpx.AsyncClient, ended: dict[str, str], path: str, which: str
) -> None:
    items = {job["id"]: job for job in (await api.get(path)).json()["items"]}
    short, whole = items[ended[which]], (await api.get(f"{JOBS}/{ended[which]}")).json()
    assert whole["truncated"] == []
    assert short["truncated"] == (["args", "result"] if which == "done" else ["args", "error"])
    for name in ("args", "result") if which == "done" else ("args",):
        assert len(whole[name]) > LARGEST / 2
        assert MAX_PREVIEW_CHARS - 10 <= len(short[name]) <= MAX_PREVIEW_CHARS
        assert short[name] == whole[name][: len(short[name])]
    if which == "dead":
        assert short["error"]["message"] == whole["error"]["message"][:MAX_PREVIEW_CHARS]
        assert short["error"]["traceback"] == whole["error"]["traceback"][-MAX_PREVIEW_CHARS:]
    others = set(whole) - {"args", "result", "error", "truncated", "parents", "children"}
    assert {name: short[name] for name in others} == {name: whole[name] for name in others}
    assert json.loads(whole["args"])["password"] == "•••"


async def test_nothing_that_is_hidden_is_on_any_page_or_in_any_list(
    api: httpx.AsyncClient, ended: dict[str, str]
) -> None:
    paths = [JOBS, DEAD, f"{DEAD}/groups", "/api/v1/tasks/send_mail/history", "/jobs", "/dead", "/jobs/export"]
    paths += [path.format(id) for id in ended.values() for path in ("/jobs/{}", JOBS + "/{}", JOBS + "/{}/attempts")]
    for path in paths:
        answer = await api.get(path)
        assert answer.status_code == 200, path
        assert "ter2" not in answer.text, path


async def test_a_short_text_is_whole_in_a_list(api: httpx.AsyncClient) -> None:
    await api.post(JOBS, json={"task": "send_mail", "args": {"to": "ada"}})
    [job] = (await api.get(JOBS)).json()["items"]
    assert (job["args"], job["truncated"]) == ('{"to":"ada"}', [])


async def test_a_secret_that_a_preview_cuts_is_hidden(app: Drumbeat, api: httpx.AsyncClient) -> None:
    store = await app._internals.store()
    for length in range(MAX_PREVIEW_CHARS - 30, MAX_PREVIEW_CHARS + 5):
        args = json.dumps({"x": "y" * length, "password": "hunter2", "to": "ada"}).replace(" ", "")
        new = NewJob(id=new_job_id(), task="send_mail", queue="mail", args=args, signature="s", delay=HOUR)
        await store.jobs.add([new])
    answer = await api.get(JOBS)
    assert len(answer.json()["items"]) == 35
    assert not any(part in answer.text for part in ("hunter2", "hunt", '\\"h'))


async def test_the_page_of_a_job_with_the_largest_arguments_holds_up_nobody(
    app: Drumbeat, api: httpx.AsyncClient
) -> None:
    args = json.dumps({f"k{n}": n for n in range(16_500)} | {"password": "hunter2"})
    assert 250_000 < len(args) < 262_144
    id, store = new_job_id(), await app._internals.store()
    await store.jobs.add([NewJob(id=id, task="send_mail", queue="mail", args=args, signature="s", delay=HOUR)])
    blocks = Blocks()
    async with blocks.watched():
        page = await api.get(f"/jobs/{id}")
    assert (page.status_code, "k16499" in page.text, "hunter2" in page.text) == (200, True, False)
    print(f"loop held up {blocks.longest * 1_000:.0f} ms")
    assert blocks.longest < 0.5
