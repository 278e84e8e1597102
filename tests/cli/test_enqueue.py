"""`drumbeat enqueue` and `drumbeat migrate`."""

import json
from pathlib import Path

import pytest

from tests.cli.command import call, invoke, read_refusal

APP = ("--app", "shop:app", "--json")


def stored(folder: Path, id: str) -> dict[str, object]:
    shown = call("jobs", "show", id, "--json", folder=folder)
    found: dict[str, object] = json.loads(shown.stdout)
    return found


def test_a_job_is_stored_as_the_signature_types_it(shop: Path) -> None:
    options = ("--delay", "1h", "--priority", "2", "--queue", "mail", "--key", "k", "--unique", "--retries", "1")
    queued = json.loads(call("enqueue", "charge", "customer=42", "amount=9.90", *options, *APP, folder=shop).stdout)
    assert queued["created"] is True
    job = stored(shop, queued["id"])
    assert {name: job[name] for name in ("args", "queue", "priority", "key", "unique", "retries", "view")} == {
        "args": '{"customer":42,"amount":"9.90"}',
        "queue": "mail",
        "priority": 2,
        "key": "k",
        "unique": "live",
        "retries": 1,
        "view": "scheduled",
    }
    again = json.loads(call("enqueue", "charge", "customer=1", "--key", "k", "--unique", *APP, folder=shop).stdout)
    assert again == {"id": queued["id"], "created": False}


def test_a_job_may_be_due_at_a_given_time(shop: Path) -> None:
    queued = json.loads(
        call("enqueue", "charge", "customer=1", "--at", "2031-01-01T01:00+01:00", *APP, folder=shop).stdout
    )
    assert stored(shop, queued["id"])["run_at"] == "2031-01-01T00:00:00Z"


def test_all_arguments_may_be_one_document(shop: Path) -> None:
    queued = json.loads(call("enqueue", "charge", "--args", '{"customer": 5}', *APP, folder=shop).stdout)
    assert stored(shop, queued["id"])["args"] == '{"customer":5}'


def test_for_people_the_id_is_all_that_is_printed(shop: Path) -> None:
    shown = call("enqueue", "charge", "customer=1", folder=shop, env={"DRUMBEAT_APP": "shop:app"})
    assert stored(shop, shown.stdout.strip())["task"] == "charge"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["charge"], "argument 'customer' is missing"),
        (["charge", "customer=many"], "argument 'customer' must be int, not 'many'"),
        (["charge", "customer=1", "color=red"], "unknown argument 'color'; it takes customer, amount, password"),
        (["chrge", "customer=1"], "did you mean 'charge'?"),
        (["charge", "customer=1", "--queue", "nope"], "queue 'nope' is declared by no task"),
        (["charge", "customer=1", "--unique"], "unique needs a key"),
        (["charge", "customer=1", "--delay", "1", "--at", "2031-01-01T00:00Z"], "delay and at exclude each other"),
        (["refuse.on_dead"], "enqueued by the death of a job"),
    ],
)
def test_what_cannot_be_queued_is_refused_by_name_and_nothing_is_stored(
    shop: Path, words: list[str], message: str
) -> None:
    before = call("jobs", "--json", folder=shop).stdout
    assert message in read_refusal(call("enqueue", *words, "--app", "shop:app", folder=shop))
    assert call("jobs", "--json", folder=shop).stdout == before


def test_migrate_creates_then_has_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check = invoke("migrate", "sqlite:///new.db", "--check")
    assert (check.exit_code, check.stdout) == (1, "")
    assert "run `drumbeat migrate`" in check.stderr
    assert not (tmp_path / "new.db").exists()
    first = invoke("migrate", "sqlite:///new.db")
    assert first.stdout.startswith(f"sqlite:///{tmp_path / 'new.db'}: version 0 -> ")
    assert invoke("migrate", "sqlite:///new.db").stdout.endswith(", nothing to do\n")
    assert json.loads(invoke("migrate", "--url", "sqlite:///new.db", "--check", "--json").stdout)["up_to_date"] is True


def test_two_urls_are_one_too_many() -> None:
    assert "two URLs" in read_refusal(invoke("migrate", "sqlite:///a.db", "--url", "sqlite:///b.db"))
