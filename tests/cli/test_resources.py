"""The admin and their verbs, on a store where jobs have had every fate."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import OutcomeKind
from drumbeat.store.urls import open_store
from tests.cli.command import call, invoke, read_refusal
from tests.contract.making import claimed_one, end, worker


def records(*words: str) -> list[dict[str, Any]]:
    """What a list gives to programs: one JSON object a line."""
    shown = invoke(*words, "--json")
    assert shown.exit_code == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def document(*words: str) -> Any:
    shown = invoke(*words, "--json")
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout)


@pytest.fixture
def letters(shop: Path) -> list[dict[str, Any]]:
    return records("dead", "list")


def test_jobs_are_listed_newest_first(shop: Path) -> None:
    ids = [job["id"] for job in records("jobs", "list")]
    assert len(ids) >= 5
    assert ids == sorted(ids, reverse=True)


def test_a_noun_alone_is_its_list(shop: Path) -> None:
    for noun in ("jobs", "dead", "queues", "tasks", "schedules", "instances"):
        assert records(noun) == records(noun, "list")


def test_options_of_a_list_need_no_verb(shop: Path) -> None:
    assert records("jobs", "--state", "dead") == records("jobs", "list", "--state", "dead") != []


def test_lists_obey_their_filters(shop: Path) -> None:
    assert {job["task"] for job in records("jobs", "list", "--task", "charge")} == {"charge"}
    assert [job["key"] for job in records("jobs", "list", "--key", "later")] == ["later"]
    assert {job["state"] for job in records("jobs", "list", "--state", "dead")} == {"dead"}
    assert len(records("dead", "list", "--error", "order 2")) == 1
    assert len(records("jobs", "list", "--limit", "2")) == 2


def test_the_next_page_begins_where_the_last_one_ended(shop: Path) -> None:
    everything = records("jobs", "list")
    assert records("jobs", "list", "--before", everything[1]["id"]) == everything[2:]
    assert f"--before {everything[1]['id']}" in invoke("jobs", "list", "--limit", "2").stdout


def test_json_gives_arguments_as_stored_and_the_screen_hides_secrets(shop: Path) -> None:
    (job,) = records("jobs", "list", "--task", "charge", "--state", "succeeded")
    assert job["args"] == '{"customer":42,"amount":"9.90","password":"hush"}'
    assert (job["result"], job["attempt"], job["view"]) == ('"42 paid 9.90"', 1, "succeeded")
    for words in (["jobs", "list"], ["jobs", "show", job["id"]]):
        shown = invoke(*words).stdout
        assert "9.90" in shown
        assert "hush" not in shown


def test_the_screen_hides_secrets_of_results_too(shop: Path) -> None:
    async def end_two() -> list[str]:
        async with await open_store(Drumbeat().settings.url) as store:
            me = await worker(store)
            kept, lost = await claimed_one(store, me, task="charge"), await claimed_one(store, me, task="charge")
            await end(store, me, kept, OutcomeKind.SUCCEEDED, result='{"customer":42,"access_token":"hush"}')
            reason = "cannot be stored: <Order at postgresql://ada:hush@db/shop of 42>"
            await end(store, me, lost, OutcomeKind.SUCCEEDED, result_error=reason)
            return [kept.id, lost.id]

    for id in asyncio.run(end_two()):
        shown = invoke("jobs", "show", id).stdout
        assert "42" in shown and "•••" in shown
        assert "hush" not in shown


def test_the_screen_shows_no_control_characters(shop: Path, letters: list[dict[str, Any]]) -> None:
    assert any("\x1b" in letter["error"]["message"] for letter in letters)
    for words in (["dead", "list"], *(["dead", "show", letter["id"]] for letter in letters)):
        shown = invoke(*words).stdout
        assert "\x1b" not in shown
    assert r"\x1b[31m" in invoke("dead", "list").stdout


def test_a_scheduled_job_is_shown_as_such(shop: Path) -> None:
    shown = invoke("jobs", "list", "--key", "later").stdout
    assert "scheduled" in shown
    assert "in 59m" in shown or "in 58m" in shown


def test_a_job_is_shown_with_all_of_its_runs(shop: Path, letters: list[dict[str, Any]]) -> None:
    letter = next(each for each in letters if each["task"] == "give_up")
    page = document("jobs", "show", letter["id"])
    assert [run["outcome"] for run in page["attempts"]] == ["dead"]
    assert page["attempts"][0]["error"]["message"] == "never"
    shown = invoke("jobs", "show", letter["id"]).stdout
    assert "Traceback" in shown
    assert "SkipRetry: never" in shown


def test_a_job_that_waits_is_cancelled_and_one_that_ended_is_not(shop: Path) -> None:
    (later,) = records("jobs", "list", "--key", "later")
    (done,) = records("jobs", "list", "--task", "charge", "--state", "succeeded")
    assert document("jobs", "cancel", later["id"], done["id"]) == {later["id"]: "cancelled", done["id"]: "succeeded"}
    assert document("jobs", "show", later["id"])["state"] == "cancelled"


def test_jobs_are_cancelled_by_task_and_key(shop: Path) -> None:
    assert document("jobs", "cancel", "--task", "charge", "--key", "later") == {"cancelled": 1, "requested": 0}
    assert document("jobs", "cancel", "--task", "charge", "--key", "later") == {"cancelled": 0, "requested": 0}


def test_cancelling_an_unknown_id_is_reported_after_the_others_were_cancelled(shop: Path) -> None:
    (later,) = records("jobs", "list", "--key", "later")
    shown = invoke("jobs", "cancel", later["id"], "nobody")
    assert "no job nobody" in read_refusal(shown)
    assert document("jobs", "show", later["id"])["state"] == "cancelled"


def test_run_now_makes_a_waiting_job_due(shop: Path) -> None:
    (later,) = records("jobs", "list", "--key", "later")
    assert document("jobs", "run-now", later["id"]) == {"due": 1}
    assert document("jobs", "show", later["id"])["view"] == "ready"


def test_run_now_refuses_a_job_that_does_not_wait(shop: Path, letters: list[dict[str, Any]]) -> None:
    assert "only a pending job can be run now" in read_refusal(invoke("jobs", "run-now", letters[0]["id"]))


def test_one_dead_letter_is_replayed_without_a_question(shop: Path, letters: list[dict[str, Any]]) -> None:
    shown = invoke("dead", "replay", letters[0]["id"])
    assert (shown.exit_code, shown.stdout) == (0, "1 dead letter replayed.\n")
    assert document("jobs", "show", letters[0]["id"])["replays"] == 1
    assert len(records("dead", "list")) == len(letters) - 1


def test_many_dead_letters_need_a_yes(shop: Path, letters: list[dict[str, Any]]) -> None:
    for verb in ("replay", "discard"):
        message = read_refusal(invoke("dead", verb, "--all"))
        assert message == f"this would {verb} 3 dead letters: add --yes to do it"
    assert records("dead", "list") == letters


@pytest.mark.parametrize("rate", [[], ["--rate", "50"]])
def test_dead_letters_are_replayed_by_what_they_have_in_common(
    shop: Path, letters: list[dict[str, Any]], rate: list[str]
) -> None:
    shown = invoke("dead", "replay", "--task", "refuse", "--yes", *rate)
    assert (shown.exit_code, shown.stdout) == (0, "2 dead letters replayed.\n")
    assert {letter["task"] for letter in records("dead", "list")} == {"give_up"}


def test_a_replay_onto_a_live_key_is_refused_with_that_job(shop: Path, letters: list[dict[str, Any]]) -> None:
    letter = next(each for each in letters if each["key"] == "a")
    words = ["enqueue", "refuse", "order=9", "--key", "a", "--unique", "--app", "shop:app", "--json"]
    live = json.loads(call(*words, folder=shop).stdout)["id"]
    shown = invoke("dead", "replay", letter["id"])
    assert shown.exit_code == 1
    assert len(shown.stderr.splitlines()) == 1
    assert live in shown.stderr
    both = invoke("dead", "replay", "--task", "refuse", "--yes")
    assert both.exit_code == 1
    assert both.stdout == "1 dead letter replayed.\n"
    assert live in both.stderr


def test_dead_letters_are_discarded(shop: Path, letters: list[dict[str, Any]]) -> None:
    assert invoke("dead", "discard", letters[0]["id"]).stdout == "1 dead letter discarded.\n"
    assert document("dead", "discard", "--all", "--yes") == {"discarded": 2}
    assert invoke("dead").stdout == f"No dead letters in sqlite:///{shop / 'drumbeat.db'}.\n"


def test_replaying_everything_where_nothing_is_dead_does_nothing(shop: Path) -> None:
    invoke("dead", "discard", "--all", "--yes")
    assert invoke("dead", "replay", "--all").stdout == "0 dead letters replayed.\n"


def test_the_lag_is_a_number_for_scripts(shop: Path) -> None:
    assert float(invoke("queues", "lag").stdout) >= 0
    told = document("queues", "lag", "critical")
    assert told["queue"] == "critical" and told["lag"] >= 0
    assert "lag" in invoke("queues", "show", "critical").stdout
    assert invoke("queues", "lag", "no-such-queue").exit_code == 2


def test_a_queue_is_paused_with_a_reason_and_resumed(shop: Path) -> None:
    assert invoke("queues", "pause", "critical", "--reason", "the bank is closed").exit_code == 0
    (queue,) = (each for each in records("queues", "list") if each["name"] == "critical")
    assert (queue["paused"], queue["paused_reason"]) == (True, "the bank is closed")
    assert "the bank is closed" in invoke("queues").stdout
    assert document("queues", "resume", "critical") == {"queue": "critical", "resumed": True}
    assert document("queues", "resume", "critical") == {"queue": "critical", "resumed": False}


def test_a_queue_that_only_the_program_knows_can_be_paused_with_its_app(shop: Path) -> None:
    done = call("queues", "pause", "mail", "--app", "shop:app", folder=shop)
    assert done.returncode == 0, done.stderr
    assert "mail" in invoke("queues").stdout


def test_tasks_are_counted(shop: Path) -> None:
    counts = {task["name"]: task for task in records("tasks", "list")}
    assert (counts["charge"]["succeeded"], counts["charge"]["pending"], counts["refuse"]["dead"]) == (1, 1, 2)
    assert "refuse" in invoke("tasks", "show", "refuse").stdout


def test_with_its_app_a_task_shows_how_it_is_called(shop: Path) -> None:
    shown = call("tasks", "show", "charge", folder=shop, env={"DRUMBEAT_APP": "shop:app"}).stdout
    assert "charge(customer: int" in shown
    assert "critical" in shown


def test_instances_that_left_are_shown_with_all(shop: Path) -> None:
    assert invoke("instances").stdout.startswith("No instance is alive")
    (instance,) = records("instances", "list", "--all")
    assert instance["state"] == "left"
    assert instance["id"] in invoke("instances", "list", "--all").stdout
    assert "charge" in invoke("instances", "show", instance["id"]).stdout


def test_the_store_may_be_named_by_option_before_or_after_the_verb_or_by_environment(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = shop / "elsewhere"
    elsewhere.mkdir()
    for file in shop.glob("drumbeat.db*"):
        shutil.move(file, elsewhere / file.name)
    url = f"sqlite:///{elsewhere / 'drumbeat.db'}"
    expected = 3
    assert len(records("dead", "list", "--url", url)) == expected
    assert len(records("dead", "--url", url, "list")) == expected
    monkeypatch.setenv("DRUMBEAT_URL", url)
    assert len(records("dead", "list")) == expected


def test_another_namespace_is_another_system(shop: Path) -> None:
    assert records("jobs", "list", "--namespace", "other") == []
    assert records("jobs", "list") != []


def test_the_lineage_of_a_job_is_shown_as_a_tree(shop: Path) -> None:
    """The newest job is the on_dead of another."""
    [job] = records("jobs", "list", "--limit", "1")
    parent = job["parent"]
    shown = invoke("jobs", "lineage", job["id"])
    assert (shown.exit_code, shown.stdout.split()[0]) == (0, parent)
    assert f"└─ {job['id']} {job['task']}" in shown.stdout and "<- this job" in shown.stdout
    found = document("jobs", "lineage", parent)
    assert (found["ancestors"], found["missing"], found["next"]) == ([], None, None)
    assert [(each["depth"], each["job"]["id"]) for each in found["descendants"]] == [(1, job["id"])]
    assert [each["id"] for each in records("jobs", "list", "--parent", parent)] == [job["id"]]


def test_an_act_that_has_ended_or_is_unknown_cannot_be_stopped(shop: Path) -> None:
    assert invoke("queues", "pause", "critical", "--reason", "a test").exit_code == 0
    [act] = records("audit", "list", "--limit", "1")
    assert "has ended: done" in read_refusal(invoke("audit", "stop", act["id"]))
    assert "there is no act" in read_refusal(invoke("audit", "stop", "nobody"))
    assert records("audit", "list", "--unended") == []
