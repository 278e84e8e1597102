"""`drumbeat workflows`, and workflows, parents and children in `drumbeat jobs`. On every engine."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from drumbeat.admin.workflows import Workflows
from drumbeat.core.dependencies import IfParentFails
from drumbeat.core.job import OutcomeKind
from drumbeat.core.suspension import StepKind, Suspension
from drumbeat.core.workflow import Workflow
from drumbeat.durations import from_us
from drumbeat.ids import new_job_id
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.cli.command import invoke, read_refusal
from tests.contract import making
from tests.contract.flows import DIAMOND, Flow, add_flow, end_job


@pytest.fixture
def place(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMBEAT_URL", store_url)
    return store_url


def on(place: str, work: Any) -> Any:
    async def run() -> Any:
        async with await open_store(place) as store:
            return await work(store)

    return asyncio.run(run())


async def half_done(store: Store) -> Flow:
    """The first has succeeded, the left one has died; the last waits for its replay."""
    flow = await add_flow(store, DIAMOND, "invoice\x1b[31m-42", labels={"customer": "ada"}, if_fails=IfParentFails.WAIT)
    hand = await making.worker(store)
    await end_job(store, hand, flow[1]["first"])
    await end_job(store, hand, flow[1]["left"], OutcomeKind.DEAD)
    return flow


def run(*words: str) -> str:
    result = invoke(*words)
    assert result.exit_code == 0, (result.stdout, result.stderr)
    return result.stdout


def test_a_list_tells_states_and_counts_in_words(place: str) -> None:
    assert "No workflow in" in run("workflows")
    id, _ = on(place, half_done)
    line = run("workflows").splitlines()[-1]
    assert line.startswith(id) and "running" in line and "customer=ada" in line
    assert "1 pending, 1 waiting, 1 succeeded, 1 dead" in line
    assert "\x1b" not in line
    [record] = [json.loads(each) for each in run("workflows", "list", "--json").splitlines()]
    assert (record["id"], record["state"], record["counts"]["waiting"]) == (id, "running", 1)
    assert "No workflow matches in" in run("workflows", "--name", "another")


def test_one_is_shown_with_its_jobs(place: str) -> None:
    id, jobs = on(place, half_done)
    lines = run("workflows", "show", id).splitlines()
    for word, state, parents in [("first", "succeeded", "0"), ("left", "dead", "1"), ("last", "waiting", "2")]:
        [line] = [line for line in lines if line.startswith(jobs[word])]
        assert line.split()[1:4] == [word, state, parents]
    record = json.loads(run("workflows", "show", id, "--json"))
    assert [node["id"] for node in record["graph"]["nodes"]] == list(jobs.values())
    assert len(record["graph"]["edges"]) == 4


def test_suspended_jobs_say_what_they_wait_for(place: str) -> None:
    async def suspend(store: Store) -> Flow:
        flow = await add_flow(store, {"nap": (), "approval": ()})
        hand = await making.worker(store)
        for job in await making.claim(store, hand):
            kind, signal = (StepKind.WAIT, "approved") if job.task == "approval" else (StepKind.SLEEP, None)
            suspension = Suspension(kind=kind, name="x", signal=signal)
            await making.end(store, hand, job, OutcomeKind.SUSPENDED, delay=making.HOUR, suspension=suspension)
        return flow

    id, jobs = on(place, suspend)
    for words in (("workflows", "show", id), ("jobs", "--workflow", id)):
        lines = {line.split()[0]: line for line in run(*words).splitlines() if line}
        assert "scheduled (asleep)" in lines[jobs["nap"]]
        assert "scheduled (signal approved)" in lines[jobs["approval"]]


def test_more_jobs_than_were_counted_are_never_cancelled_unasked(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were counted may all have ended."""
    id, _ = on(place, half_done)

    async def show(self: Workflows, id: str) -> Workflow:
        return Workflow(
            id=id, name="x", labels={}, created_at=from_us(1_800_000_000_000_000), counts={"succeeded": 1}, capped=True
        )

    monkeypatch.setattr(Workflows, "show", show)
    assert "this would cancel at least 0 live jobs" in read_refusal(invoke("workflows", "cancel", id))


def test_a_large_one_is_shown_by_task(place: str) -> None:
    async def add(store: Store) -> str:
        return (await add_flow(store, {f"n{number}": () for number in range(201)}, task="render"))[0]

    assert run("workflows", "show", on(place, add)).splitlines()[-1].split() == ["render", "201", "pending"]


def test_a_job_tells_its_workflow_its_parents_and_its_children(place: str) -> None:
    id, jobs = on(place, half_done)
    lines = run("jobs", "show", jobs["last"]).splitlines()
    assert ["workflow", id] in [line.split() for line in lines]
    assert ["waits", "for", "2", "parents"] in [line.split() for line in lines]
    assert lines.index("It depends on:") and "Jobs that depend on it:" not in lines
    [left] = [line.split() for line in lines if line.startswith(jobs["left"])]
    assert left[1:5] == ["left", "dead", "yes", "wait"]
    record = json.loads(run("jobs", "show", jobs["first"], "--json"))
    assert [each["id"] for each in record["children"]] == [jobs["left"], jobs["right"]]
    assert (record["parents"], record["workflow"]) == ([], id)
    waiting = run("jobs", "list", "--workflow", id, "--state", "waiting").splitlines()
    assert len(waiting) == 2 and "waiting (2 parents)" in waiting[1]
    assert run("dead", "list", "--workflow", id, "--json").count('"id"') == 1
    assert "No dead letters" in run("dead", "list", "--workflow", new_job_id())
    explained = run("explain", jobs["last"])
    assert f"it waits for the dead letter {jobs['left']} (task left) to be replayed" in explained


def test_acts_are_counted_confirmed_and_on_record(place: str) -> None:
    id, _ = on(place, half_done)
    assert run("workflows", "replay", id, "--dry-run") == "This would replay 1 dead letter.\nNothing was done.\n"
    assert run("workflows", "replay", id, "--reason", "mended") == "1 dead letter replayed.\n"
    assert "this would cancel 3 live jobs of workflow" in read_refusal(invoke("workflows", "cancel", id))
    assert json.loads(run("workflows", "cancel", id, "--dry-run", "--json"))["matched"] == 3
    assert run("workflows", "cancel", id, "--yes") == "3 jobs cancelled.\n"
    assert "cancelled at" in run("workflows", "show", id)

    async def look(store: Store) -> list[tuple[str, str, str, int | None]]:
        return [(act.verb, act.target, act.reason, act.touched) for act in await store.audit.list_page()]

    assert on(place, look) == [("workflows.cancel", id, "", 3), ("workflows.replay", id, "mended", 1)]


def test_what_is_not_there_is_refused_in_one_line(place: str) -> None:
    id = new_job_id()
    for words in (("show", id), ("cancel", id), ("replay", id), ("show", "x")):
        assert read_refusal(invoke("workflows", *words)) == f"no workflow {words[1]}"
