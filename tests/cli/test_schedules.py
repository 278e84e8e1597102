"""`drumbeat schedules` and `drumbeat tasks history`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.clock import SYSTEM
from drumbeat.durations import from_us
from tests.cli.command import call, invoke, read_refusal

APP = ("--app", "shop:app")


def document(*words: str) -> Any:
    shown = invoke("schedules", *words, "--json")
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout)


def records(*words: str) -> list[dict[str, Any]]:
    shown = invoke(*words, "--json")
    assert shown.exit_code == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


@pytest.fixture
def nightly(shop: Path) -> dict[str, Any]:
    """A schedule of the shop's task, made by the command line."""
    words = ["customer=42", "amount=9.90", "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--by", "ada"]
    made = call("schedules", "create", "charge", *words, "--name", "nightly", "--json", *APP, folder=shop)
    assert made.returncode == 0, made.stderr
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def test_a_schedule_is_made_with_typed_arguments_and_listed(nightly: dict[str, Any]) -> None:
    assert json.loads(nightly["args"]) == {"customer": 42, "amount": "9.90"}
    assert (nightly["task"], nightly["queue"], nightly["changed_by"]) == ("charge", "critical", "ada")
    assert records("schedules") == [nightly]
    assert document("show", "nightly") == nightly
    shown = invoke("schedules", "list").stdout
    assert "nightly" in shown and "0 3 * * * (Europe/Berlin)" in shown and "ada" in shown
    page = invoke("schedules", "show", "nightly").stdout
    assert "Europe/Berlin" in page and '"customer": 42' in page


def test_what_is_given_is_changed(nightly: dict[str, Any]) -> None:
    changed = document("change", "nightly", "--cron", "0 4 * * *", "--overlap", "queue", "--catch-up", "none")
    assert (changed["cron"], changed["tz"], changed["overlap"], changed["catch_up"]) == (
        "0 4 * * *",
        "Europe/Berlin",
        "queue",
        "none",
    )
    changed = document("change", "nightly", "--every", "5m", "--grid", "--max-late", "1h", "--jitter", "2s")
    assert (changed["every"], changed["grid"], changed["max_late"], changed["jitter"]) == (300.0, True, 3600.0, 2.0)
    assert "say what to change" in read_refusal(invoke("schedules", "change", "nightly"))


def test_new_arguments_need_the_app(nightly: dict[str, Any], shop: Path) -> None:
    assert "--app" in read_refusal(invoke("schedules", "change", "nightly", "customer=7"))
    words = ("schedules", "change", "nightly", "customer=7", "--json")
    changed = json.loads(call(*words, *APP, folder=shop).stdout)
    assert json.loads(changed["args"]) == {"customer": 7}


def test_pause_resume_and_delete(nightly: dict[str, Any]) -> None:
    assert invoke("schedules", "pause", "nightly", "--reason", "holidays").stdout == "Schedule nightly is paused.\n"
    assert document("pause", "nightly") == {"paused": False}
    assert "paused: holidays" in invoke("schedules", "show", "nightly").stdout
    assert document("resume", "nightly") == {"resumed": True}
    assert "was not paused" in invoke("schedules", "resume", "nightly").stdout
    assert document("delete", "nightly") == {"deleted": True}
    assert records("schedules", "list") == []
    assert [each["state"] for each in records("schedules", "list", "--all")] == ["retired"]
    assert "no schedule 'nightly' any more" in read_refusal(invoke("schedules", "delete", "nightly"))


def test_run_now_prints_the_id_of_a_job(nightly: dict[str, Any]) -> None:
    id = invoke("schedules", "run-now", "nightly").stdout.strip()
    [job] = records("jobs", "list", "--limit", "1")
    assert (job["id"], job["task"], job["state"]) == (id, "charge", "pending")


def test_backfill_and_the_history_of_fires(nightly: dict[str, Any]) -> None:
    document("change", "nightly", "--overlap", "allow")
    today = from_us(SYSTEM.now_us()).replace(hour=0, minute=0, second=0, microsecond=0)
    first, last = (f"{today - timedelta(days=days):%Y-%m-%dT%H:%MZ}" for days in (4, 1))
    filled = document("backfill", "nightly", first, last)
    assert (len(filled["jobs"]), filled["skipped"]) == (3, 0)
    again = invoke("schedules", "backfill", "nightly", first, last)
    assert again.stdout == "0 jobs enqueued, 3 fires skipped: fired before, or not allowed by overlap.\n"
    fires = records("schedules", "history", "nightly")
    assert [fire["job"] for fire in fires] == filled["jobs"][::-1]
    assert {fire["outcome"] for fire in fires} == {"fired"}
    shown = invoke("schedules", "history", "nightly", "--limit", "2").stdout
    assert filled["jobs"][2] in shown and "--before" in shown
    before = shown.split("--before ")[1].split(",")[0]
    assert [fire["job"] for fire in records("schedules", "history", "nightly", "--before", before)] == filled["jobs"][
        :1
    ]
    assert "in the past" in read_refusal(invoke("schedules", "backfill", "nightly", first, "2099-01-01T00:00Z"))


def test_preview_of_a_rule_asks_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = records("schedules", "preview", "30 2 29 3 *", "--tz", "Europe/Berlin", "--count", "20")
    assert {each["at"][5:16] for each in found} == {"03-29T02:30", "03-29T03:00"}
    assert any("clocks go forward" in each["note"] for each in found)
    every = records("schedules", "preview", "--every", "90m", "--grid", "--count", "2")
    fire_times = [datetime.fromisoformat(each["at"]).astimezone(UTC) for each in every]
    assert fire_times[1] - fire_times[0] == timedelta(minutes=90)
    assert len(records("schedules", "preview", "@daily")) == 10
    assert "UTC" in invoke("schedules", "preview", "0 3 * * *").stdout
    assert list(tmp_path.iterdir()) == []


def test_preview_of_a_schedule(nightly: dict[str, Any]) -> None:
    [one] = records("schedules", "preview", "nightly", "--count", "1")
    assert datetime.fromisoformat(one["at"]) == datetime.fromisoformat(nightly["next_at"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["preview", "0 0 30 2 *"], "never fires"),
        (["preview", "1--100000000"], "5 fields"),
        (["preview", "1--100000000 * * * *"], "minute"),
        (["preview", "* " * 5_000], "200 characters"),
        (["preview", "@daily", "--tz", "../../etc/passwd"], "tz"),
        (["preview"], "which schedule"),
        (["preview", "nightly", "--every", "5m"], "not both"),
        (["preview", "@daily", "--every", "5m"], "one of them"),
        (["show", "nobody"], "there is no schedule 'nobody'"),
        (["show", "a b"], "not a valid name"),
        (["create", "charge", "--cron", "@daily"], "--app"),
        (["backfill", "x", "yesterday", "today"], "no timestamp"),
        (["pause", "nobody"], "there is no schedule"),
    ],
)
def test_invalid_input_is_refused_in_one_line(shop: Path, words: list[str], message: str) -> None:
    assert message in read_refusal(invoke("schedules", *words))


def test_the_runs_of_a_task_are_listed(shop: Path) -> None:
    runs = records("tasks", "history", "charge")
    assert [run["outcome"] for run in runs] == ["succeeded"]
    assert runs[0]["late"] is not None and runs[0]["instance"]
    shown = invoke("tasks", "history", "refuse").stdout
    assert shown.count("ValueError") == 2
    assert "did you mean 'charge'" in read_refusal(invoke("tasks", "history", "chrage"))
