"""What the doctor names in records that are not as we wrote them."""

from typing import Any

import pytest

from drumbeat.ids import new_job_id
from drumbeat.store import malformed
from drumbeat.store.malformed import MAX_QUOTED, find_faults, log_faults, neutral_value, quote
from drumbeat.store.records import RECORD_KINDS

TEXTS = ("task", "queue", "args", "signature")


@pytest.mark.parametrize(("error", "named"), [("{", ["error"]), (None, [])])
def test_an_error_that_cannot_be_read_is_named(error: str | None, named: list[str]) -> None:
    letter: dict[str, Any] = {"id": new_job_id(), "state": "dead", "created_at": 1, "due_at": 1, "run_at": 1}
    letter |= dict.fromkeys(TEXTS, "{}") | {"error": error}
    assert [fault.field for fault in find_faults(RECORD_KINDS["dead_letters"], [letter])] == named


def test_what_is_quoted_is_whole_if_it_is_short_and_cut_if_it_is_long() -> None:
    assert quote("short") == "'short'"
    assert quote("x" * 10_000) == "'" + "x" * (MAX_QUOTED - 1) + "..."


@pytest.mark.parametrize(("kind", "value"), [(int | None, None), (int | str, 0), (str, "")])
def test_in_the_place_of_what_cannot_be_read_stands_nothing_or_an_empty_value(kind: Any, value: object) -> None:
    assert neutral_value(kind) == value


def test_a_damaged_record_is_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malformed, "_logged", set())
    name = new_job_id()
    for _ in range(2):
        log_faults("job", name, [("error", "it is missing")])
    [record] = caplog.records
    assert vars(record)["record"] == name
