"""`drumbeat signal`, on every engine."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.audit import AuditEntry
from drumbeat.core.job import OutcomeKind
from drumbeat.core.signals import SignalRecord
from drumbeat.core.step import NewStep, StepKind
from drumbeat.core.suspension import Suspension
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.cli.command import invoke, read_refusal
from tests.contract import making


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


def test_a_signal_is_sent_and_on_record(place: str) -> None:
    async def add(store: Store) -> JobId:
        return (await making.add(store, making.new_job(key="order-1")))[0]

    async def look(store: Store) -> tuple[list[SignalRecord], list[AuditEntry]]:
        return (await store.steps.list_signals([job]))[job], await store.audit.list_page()

    job: JobId = on(place, add)
    result = invoke("signal", job, "approved", '{"by": "ann"}', "--reason", "as agreed")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"The signal approved is sent to {job}.\n"
    by_key = invoke("signal", "paid", "--task", "greet", "--key", "order-1", "--json")
    assert by_key.exit_code == 0 and json.loads(by_key.stdout)["id"]
    signals, acts = on(place, look)
    assert [(each.name, each.payload) for each in signals] == [("approved", '{"by":"ann"}'), ("paid", "null")]
    assert [(act.verb, act.target, act.reason, act.outcome) for act in acts] == [
        ("jobs.signal", "task=greet key=order-1", "", "done"),
        ("jobs.signal", job, "as agreed", "done"),
    ]


def test_a_job_is_shown_with_its_steps_and_signals(place: str) -> None:
    async def suspend(store: Store) -> JobId:
        hand = await making.worker(store)
        job = await making.claimed_one(store, hand)
        times = {"started_at": job.token, "finished_at": job.token + 5_000}
        result = '{"receipt":7,"password":"hunter2"}'
        await store.steps.record(hand, [NewStep(claim=making.hold(job), name="charge", result=result, **times)])
        for suspension, delay in (
            (Suspension(kind=StepKind.SLEEP, name="short"), 0),
            (Suspension(kind=StepKind.WAIT, name="ok", signal="approved"), making.HOUR),
        ):
            await making.end(store, hand, job, OutcomeKind.SUSPENDED, delay=delay, suspension=suspension)
            [job] = await making.claim(store, hand) or [job]
        return job.id

    id: JobId = on(place, suspend)
    assert invoke("signal", id, "unread", '{"by": "ann"}').exit_code == 0
    lines = invoke("jobs", "show", id).stdout.splitlines()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line}
    assert rows["charge"].startswith("step done ") and "receipt=7" in rows["charge"]
    assert rows["short"].startswith("sleep over ")
    assert rows["ok"].startswith("wait waits for approved ")
    assert rows["unread"].startswith("- ") and 'by="ann"' in rows["unread"]
    assert "hunter2" not in "".join(lines)
    record = json.loads(invoke("jobs", "show", id, "--json").stdout)
    assert [step["name"] for step in record["steps"]] == ["charge", "short", "ok"]
    assert [signal["name"] for signal in record["signals"]] == ["unread"]


def test_what_cannot_be_sent_is_refused_in_one_line(place: str) -> None:
    async def add(store: Store) -> JobId:
        return (await making.add(store, making.new_job()))[0]

    id = on(place, add)
    for words, message in [
        ((id,), "say what to send: [ID] NAME [PAYLOAD]"),
        ((id, "approved", "{"), "the payload is no JSON"),
        ((id, "approved", "--task", "greet"), "say which job gets the signal"),
        (("approved", "--task", "greet", "--key", "k"), "no job of task 'greet' has the key 'k'"),
        (("01a1ee7e-c4c6-7d3b-9976-2178882a7964", "approved"), "no job 01a1ee7e"),
    ]:
        assert message in read_refusal(invoke("signal", *words))
