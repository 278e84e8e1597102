"""How many calls of the store a page or a click costs: pages read in batches, a replay click is begin, replay, end."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import httpx
import pytest

import drumbeat
from drumbeat import Drumbeat
from drumbeat.core.job import OutcomeKind
from tests.contract import making
from tests.faults import FaultyStore
from tests.web.test_pages_time import fire, make_schedule

SOURCE = Path(drumbeat.__file__).parent
MAX_REPLAY_FILES = 14
"""Files that a replay click passes through, without the values and names that all of them use."""
VALUES = ("core/", "ids.py", "clock.py", "durations.py", "redaction.py", "names.py", "codec/", "errors.py", "settings")
BESIDE = ("service.py", "testing/")
"""Runs in the background of an engine meanwhile, or is what counts its calls here."""


@pytest.fixture
async def counted(app: Drumbeat, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The calls of the app's store, by operation."""
    store = FaultyStore(await app._internals.store())

    monkeypatch.setitem(app._internals.client.loop_stores.open_stores, asyncio.get_running_loop(), store)
    return store.calls


async def calls_of(api: httpx.AsyncClient, counted: Counter[str], path: str) -> Counter[str]:
    await api.get(path)  # what is cached for some seconds is not counted
    counted.clear()
    assert (await api.get(path)).status_code == 200
    return Counter(counted)


@pytest.mark.parametrize("path", ["/schedules", "/timeline"])
async def test_many_schedules_cost_as_many_calls_as_one(
    api: httpx.AsyncClient, app: Drumbeat, counted: Counter[str], path: str
) -> None:
    await make_schedule(api, "s-00")
    await fire(app, "s-00")
    one = await calls_of(api, counted, path)
    for number in range(1, 25):
        await make_schedule(api, f"s-{number:02}")
        await fire(app, f"s-{number:02}")
    assert await calls_of(api, counted, path) == one
    assert one["schedules.list_fires"] == 1 and one["inspect.get_jobs"] <= 1


async def test_the_runs_of_all_tasks_are_read_in_one_call(
    api: httpx.AsyncClient, app: Drumbeat, counted: Counter[str]
) -> None:
    store = await app._internals.store()
    hand = await making.worker(store, queues=("mail",), tasks=app._internals.registry.signatures())
    for _ in range(5):
        await app._internals.registry["send_mail"].enqueue("ada")
    await making.report(
        store,
        hand,
        *(making.outcome(job, OutcomeKind.DEAD) for job in await making.claim(store, hand, "mail", limit=5)),
    )
    calls = await calls_of(api, counted, "/timeline?by=task")
    assert (calls["inspect.get_attempts"], calls["inspect.find_page"]) == (1, 1)


@pytest.mark.parametrize("path", ["/", "/queues", "/schedules", "/tasks/send_mail", "/instances"])
async def test_health_is_read_once_for_a_page(api: httpx.AsyncClient, counted: Counter[str], path: str) -> None:
    calls = await calls_of(api, counted, path)
    assert calls["schedules.get_due"] == 1
    assert calls["inspect.now"] <= 2  # by the handlers, and by health


async def test_a_replay_click_is_three_calls_of_the_store(
    api: httpx.AsyncClient, app: Drumbeat, counted: Counter[str]
) -> None:
    store = await app._internals.store()
    hand = await making.worker(store, queues=("mail",), tasks=app._internals.registry.signatures())
    dead = await app._internals.registry["send_mail"].enqueue("ada")
    [job] = await making.claim(store, hand, "mail")
    await making.report(store, hand, making.outcome(job, OutcomeKind.DEAD))
    await api.post("/api/v1/queues/mail/resume", json={})  # types are resolved, sessions created
    counted.clear()
    files: set[str] = set()
    sys.setprofile(_record(files))
    try:
        answer = await api.post(f"/api/v1/dead/{dead.id}/replay", json={"reason": "mended"})
    finally:
        sys.setprofile(None)
    assert (answer.status_code, answer.json()["touched"]) == (200, 1)
    assert counted == {"audit.begin": 1, "jobs.replay": 1, "audit.end": 1}
    above = sorted(file for file in files if not file.startswith((*VALUES, *BESIDE)))
    # And static/dialogs.js; of the engine its audit and its jobs, without what lies below them.
    assert 1 + len([file for file in above if not file.startswith("store/")]) + 2 <= MAX_REPLAY_FILES, "\n".join(above)


def _record(files: set[str]) -> Callable[[FrameType, str, object], None]:
    def profile(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            files.add(str(path.relative_to(SOURCE)))

    return profile
