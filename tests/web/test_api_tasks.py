"""/api/v1/tasks on every engine: what tasks there are, what they take, and their runs."""

from decimal import Decimal
from typing import Any

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId
from tests.contract import making

TASKS = "/api/v1/tasks"


@pytest.fixture
async def hand(app: Drumbeat) -> InstanceId:
    return await making.worker(await app._internals.store(), queues=("mail",), tasks={"far_away": "abc"})


async def test_tasks_of_the_program_and_of_living_workers_are_listed(api: httpx.AsyncClient, hand: InstanceId) -> None:
    tasks = {task["name"]: task for task in (await api.get(TASKS)).json()["items"]}
    assert (tasks["send_mail"]["registered"], tasks["far_away"]["registered"]) == (True, False)


async def test_a_task_tells_what_it_takes_for_a_form(api: httpx.AsyncClient, app: Drumbeat) -> None:
    @app.task
    async def charge(customer: int, amount: Decimal, tags: list[str] | None = None, dry: bool = False) -> None: ...

    task = (await api.get(f"{TASKS}/charge")).json()
    found = {each["name"]: (each["type"], each["required"], each["default"]) for each in task["parameters"]}
    assert found == {
        "customer": ("int", True, None),
        "amount": ("Decimal", True, None),
        "tags": ("list[str] | None", False, "null"),
        "dry": ("bool", False, "false"),
    }
    assert task["parameters"][0]["schema"] == {"type": "integer"}
    assert task["signature"] == app._internals.registry["charge"].signature.hash


@pytest.mark.parametrize("name", ["nowhere", "a b", "%3Cimg%20src=x%3E"])
async def test_an_unknown_task_is_not_found(api: httpx.AsyncClient, name: str) -> None:
    for path in (f"{TASKS}/{name}", f"{TASKS}/{name}/history"):
        answer = await api.get(path)
        assert answer.status_code == 404, answer.text
        assert answer.headers["content-type"] == "application/problem+json"


async def test_the_history_of_a_task_has_every_run_page_by_page(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    task, store = app._internals.registry["send_mail"], await app._internals.store()
    ids: list[str] = []
    for number in range(7):
        ids.append((await task.enqueue("ada")).id)
        kinds = [OutcomeKind.RETRY, OutcomeKind.SUCCEEDED] if number % 2 else [OutcomeKind.SUCCEEDED]
        for kind in kinds:
            for job in await making.claim(store, hand, "mail"):
                await making.end(store, hand, job, kind)
    # One that has not run has no runs, and must not end the pages before the older ones.
    await task.using(delay=3600).enqueue("later")
    seen: list[tuple[str, str]] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = (await api.get(f"{TASKS}/send_mail/history", params=query)).json()
        seen += [(run["job"], run["outcome"]) for run in page["items"]]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    expected = [
        (id, outcome)
        for number, id in reversed(list(enumerate(ids)))
        for outcome in (["succeeded", "retry"] if number % 2 else ["succeeded"])
    ]
    assert seen == expected


async def test_a_run_tells_when_it_was_due_where_it_ran_and_how_late_it_was(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    store = await app._internals.store()
    await app._internals.registry["send_mail"].enqueue("ada")
    for job in await making.claim(store, hand, "mail"):
        await making.end(store, hand, job, OutcomeKind.DEAD)
    [run] = (await api.get(f"{TASKS}/send_mail/history")).json()["items"]
    assert (run["instance"], run["outcome"], run["error"]["message"]) == (hand, "dead", "boom")
    assert run["late"] >= 0
    assert run["finished_at"] > run["started_at"] >= run["due_at"]
