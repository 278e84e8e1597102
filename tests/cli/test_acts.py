"""What people do from a shell: on record with who and why, and only said with --dry-run. On every engine."""

import asyncio
import getpass
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.job import Failure, OutcomeKind
from drumbeat.core.lock import NewTicket
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.cli.command import invoke, read_refusal
from tests.contract import making, scheduling
from tests.contract.making import HOUR


@pytest.fixture
def place(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMBEAT_URL", store_url)
    return store_url


def on(place: str, steps: Any) -> Any:
    """Do something to the store, as programs would."""

    async def done() -> Any:
        async with await open_store(place) as store:
            return await steps(store)

    return asyncio.run(done())


def shown(*words: str) -> str:
    result = invoke(*words)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def document(*words: str) -> Any:
    return json.loads(shown(*words, "--json"))


def records(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown(*words, "--json").splitlines()]


def last_act() -> tuple[str, str, int, str, str]:
    [act] = records("audit", "list", "--limit", "1")
    assert (act["who"], act["via"], act["role"]) == (f"{getpass.getuser()}@{socket.gethostname()}", "cli", "admin")
    assert act["done_at"] is not None
    return act["verb"], act["target"], act["touched"], act["outcome"], act["reason"]


async def waiting_job(store: Store) -> JobId:
    [id] = await making.add(store, making.new_job(delay=HOUR, key="k"))
    return id


async def letters(store: Store) -> list[JobId]:
    """Three of one kind, one of another."""
    worker, found = await making.worker(store), []
    for error in ("refused", "refused", "refused", "timed out"):
        job = await making.claimed_one(store, worker)
        failure = Failure("builtins.ConnectionError", f"connection {error}", "")
        await making.end(store, worker, job, OutcomeKind.DEAD, error=failure)
        found.append(job.id)
    await store.instances.deregister(worker, "done")
    return found


def test_pausing_and_resuming_a_queue_is_on_record(place: str) -> None:
    on(place, waiting_job)
    shown("queues", "pause", "default", "--reason", "the bank is closed")
    assert last_act() == ("queues.pause", "default", 1, "done", "the bank is closed")
    [queue] = records("queues")
    assert (queue["paused_by"], queue["paused_reason"]) == (
        f"{getpass.getuser()}@{socket.gethostname()}",
        "the bank is closed",
    )
    shown("queues", "resume", "default")
    assert last_act() == ("queues.resume", "default", 1, "done", "")
    shown("queues", "resume", "default", "--reason", "again")
    assert last_act() == ("queues.resume", "default", 0, "done", "again")


def test_what_was_refused_is_on_record_as_refused(place: str) -> None:
    read_refusal(invoke("queues", "pause", "nothing", "--reason", "a slip"))
    assert last_act() == ("queues.pause", "nothing", 0, "refused", "a slip")


def test_acts_on_jobs_are_on_record(place: str) -> None:
    first, second = on(place, waiting_job), on(place, waiting_job)
    shown("jobs", "run-now", first, "--reason", "impatient")
    assert last_act() == ("jobs.run_now", first, 1, "done", "impatient")
    shown("jobs", "run-now", second, "--reason", "too")
    assert last_act() == ("jobs.run_now", second, 1, "done", "too")
    shown("jobs", "cancel", first, "--reason", "not needed")
    assert last_act() == ("jobs.cancel", first, 1, "done", "not needed")
    shown("jobs", "cancel", "--task", "greet", "--key", "k", "--reason", "all of them")
    assert last_act() == ("jobs.cancel", "task=greet key=k", 1, "done", "all of them")


def test_a_cancellation_by_keys_tells_what_will_not_run_from_what_was_asked_to_stop(place: str) -> None:
    async def running(store: Store) -> JobId:
        return (await making.claimed_one(store, await making.worker(store), key="r")).id

    on(place, running)
    on(place, waiting_job)
    text = shown("jobs", "cancel", "--task", "greet", "--key", "k", "--key", "r")
    assert "1 job of task greet with 2 keys cancelled." in text
    assert "1 job running: asked to stop, and may still end otherwise." in text
    assert last_act()[:4] == ("jobs.cancel", "task=greet keys=k, r", 2, "done")


def test_a_dry_cancellation_says_what_it_would_do_and_does_nothing(place: str) -> None:
    async def running(store: Store) -> JobId:
        return (await making.claimed_one(store, await making.worker(store))).id

    waiting, runs = on(place, waiting_job), on(place, running)
    text = shown("jobs", "cancel", waiting, runs, "--dry-run")
    assert f"job {waiting} would be cancelled" in text
    assert f"job {runs} is running: it would be asked to stop" in text
    assert "2 jobs to cancel; nothing was done" in text
    assert document("jobs", "cancel", "--task", "greet", "--key", "k", "--dry-run") == {
        "dry_run": True,
        "jobs": {waiting: "pending"},
    }
    assert document("jobs", "show", waiting)["state"] == "pending"
    assert document("jobs", "show", runs)["cancel_requested"] is False
    assert records("audit") == []


def test_dead_letters_are_grouped_the_largest_first(place: str) -> None:
    ids = on(place, letters)
    [group] = records("dead", "groups")
    assert (group["task"], group["error"], group["count"], group["sample"]) == (
        "greet",
        "builtins.ConnectionError",
        4,
        ids[-1],
    )
    text = shown("dead", "groups")
    assert "ConnectionError" in text and "connection timed out" in text


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_a_dry_run_on_dead_letters_counts_them_and_touches_none(place: str, verb: str) -> None:
    ids = on(place, letters)
    text = shown("dead", verb, "--match", "refused", "--dry-run")
    assert text == f"This would {verb} 3 dead letters: greet 3.\nNothing was done.\n"
    found = document("dead", verb, "--match", "timed out", "--dry-run")
    assert found == {"dry_run": True, "matched": 1, "tasks": {"greet": 1}, "ids": [ids[-1]]}
    assert document("dead", verb, "--all", "--dry-run")["matched"] == 4
    assert len(records("dead")) == 4
    assert records("audit") == []


def test_a_paced_replay_of_what_matches_is_on_record(place: str) -> None:
    on(place, letters)
    text = shown("dead", "replay", "--match", "refused", "--rate", "100", "--yes", "--reason", "it is back")
    assert text == "3 dead letters replayed.\n"
    assert last_act() == ("dead.replay", "error=refused", 3, "done", "it is back")
    assert [letter["error"]["message"] for letter in records("dead")] == ["connection timed out"]


def test_discarding_is_on_record_and_what_nobody_confirmed_is_not(place: str) -> None:
    ids = on(place, letters)
    read_refusal(invoke("dead", "discard", "--all"))
    assert records("audit") == []
    shown("dead", "discard", ids[0], "--reason", "old")
    assert last_act() == ("dead.discard", ids[0], 1, "done", "old")
    shown("dead", "discard", "--all", "--yes")
    assert last_act() == ("dead.discard", "all", 3, "done", "")


def test_schedules_and_locks_are_acted_on_on_record(place: str) -> None:
    async def prepared(store: Store) -> None:
        await scheduling.put(store, scheduling.new_schedule(), next_at=await store.inspect.now() + HOUR)
        await store.locks.acquire(NewTicket(id="t", lock="sweep", lease=HOUR))

    on(place, prepared)
    shown("schedules", "pause", "nightly", "--reason", "holidays")
    assert last_act() == ("schedules.pause", "nightly", 1, "done", "holidays")
    assert document("schedules", "show", "nightly")["changed_by"] == f"{getpass.getuser()}@{socket.gethostname()}"
    shown("schedules", "resume", "nightly", "--reason", "over")
    assert last_act() == ("schedules.resume", "nightly", 1, "done", "over")
    made = shown("schedules", "run-now", "nightly", "--reason", "a test").strip()
    assert last_act() == ("schedules.run_now", "nightly", 1, "done", "a test")
    [act] = records("audit", "list", "--limit", "1")
    assert json.loads(document("audit", "show", act["id"])["answer"]) == {"id": made}, "the schedule's page leads there"
    shown("schedules", "delete", "nightly", "--reason", "gone")
    assert last_act() == ("schedules.delete", "nightly", 1, "done", "gone")
    shown("locks", "release", "sweep", "--reason", "stuck")
    assert last_act() == ("locks.release", "sweep", 1, "done", "stuck")


def test_the_record_is_listed_by_who_verb_and_target_page_by_page_and_shown(place: str) -> None:
    on(place, waiting_job)
    for verb, reason in (("pause", "a test"), ("resume", "a \x1b[31m test"), ("pause", "")):
        shown("queues", verb, "default", "--reason", reason)
    acts = records("audit")
    assert [act["verb"] for act in acts] == ["queues.pause", "queues.resume", "queues.pause"]
    assert records("audit", "list", "--before", acts[0]["id"]) == acts[1:]
    assert records("audit", "--verb", "queues.res") == acts[1:2]
    assert records("audit", "--target", "default", "--who", acts[0]["who"]) == acts
    assert records("audit", "--who", "nobody") == []
    assert f"--before {acts[0]['id']}" in shown("audit", "--limit", "1")
    text = shown("audit", "show", acts[1]["id"])
    assert "queues.resume" in text and "done" in text and r"a \x1b[31m test" in text
    assert "\x1b" not in text + shown("audit")
    assert "there is no act" in read_refusal(invoke("audit", "show", "nothing"))


def test_a_queue_is_shown_with_its_workers(place: str) -> None:
    async def prepared(store: Store) -> str:
        await making.worker(store, queues=("other",))
        worker = await making.worker(store, concurrency=7)
        await making.claimed_one(store, worker)
        await store.instances.heartbeat(worker, 1)
        return worker

    worker = on(place, prepared)
    found = document("queues", "show", "default")
    assert (found["name"], found["running"], found["workers"]) == ("default", 1, [worker])
    assert "1 worker, 1 of 7 slots taken" in shown("queues", "show", "default")
    assert "there is no queue 'nothing'" in read_refusal(invoke("queues", "show", "nothing"))


def test_a_job_is_explained(place: str) -> None:
    id = on(place, waiting_job)
    text = shown("explain", id)
    assert text.startswith(f"job {id} is scheduled:\n  - it is not due before ")
    assert "  - no worker is alive" in text
    found = document("explain", id)
    assert (found["job"], found["view"], [reason["kind"] for reason in found["reasons"]]) == (
        id,
        "scheduled",
        ["not_due", "no_worker"],
    )
    assert "no job" in read_refusal(invoke("explain", "nobody"))


def test_no_output_for_people_shows_a_password_that_an_error_repeats(place: str) -> None:
    failure = Failure("app.DatabaseDown", "no answer from postgresql://ada:hunter2@db/app?password=hunter2", "")

    async def failed(store: Store) -> tuple[JobId, JobId]:
        worker = await making.worker(store)
        dead, retried = await making.claimed_one(store, worker), await making.claimed_one(store, worker)
        await making.end(store, worker, dead, OutcomeKind.DEAD, error=failure)
        await making.end(store, worker, retried, OutcomeKind.RETRY, error=failure, delay=HOUR)
        return dead.id, retried.id

    dead, retried = on(place, failed)
    commands = [("explain", dead), ("explain", retried), ("dead", "groups"), ("top", "--once"), ("dead", "list")]
    for command in [*commands, ("dead", "show", dead), ("jobs", "show", retried), ("tasks", "history", "greet")]:
        text = shown(*command)
        assert "hunter2" not in text, command
        assert "DatabaseDown" in text, command
        assert "postgresql://ada:•••" in text, command


def test_a_dry_replay_of_a_discarded_letter_is_refused_as_the_real_one_is(place: str) -> None:
    id = on(place, letters)[0]
    assert document("dead", "replay", id, "--dry-run")["ids"] == [id]
    shown("dead", "discard", id)
    message = "is no dead letter any more: somebody has discarded it"
    assert message in read_refusal(invoke("dead", "replay", id, "--dry-run"))
    assert message in read_refusal(invoke("dead", "replay", id))


def test_dead_letters_may_be_chosen_by_when_they_were_made(place: str) -> None:
    on(place, letters)
    assert document("dead", "replay", "--until", "1h", "--dry-run")["matched"] == 0
    assert document("dead", "replay", "--since", "1h", "--dry-run")["matched"] == 4


def test_who_leads_is_shown_among_the_instances(place: str) -> None:
    async def led(store: Store) -> str:
        await making.worker(store)
        leader = await making.worker(store)
        await store.instances.heartbeat(leader, 0, lead=HOUR)
        return leader

    leader = on(place, led)
    lines = shown("instances").splitlines()
    assert [line.split()[0] for line in lines if "leads" in line] == [leader]
    assert "leads" in shown("instances", "show", leader)
