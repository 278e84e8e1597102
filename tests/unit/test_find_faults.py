"""What the doctor names in records that are not as we wrote them."""

from typing import Any

import pytest

from drumbeat.ids import new_job_id
from drumbeat.store.malformed import find_faults
from drumbeat.store.records import RECORD_KINDS

TEXTS = ("task", "queue", "args", "signature")


@pytest.mark.parametrize(("error", "named"), [("{", ["error"]), (None, [])])
def test_an_error_that_cannot_be_read_is_named(error: str | None, named: list[str]) -> None:
    letter: dict[str, Any] = {"id": new_job_id(), "state": "dead", "created_at": 1, "due_at": 1, "run_at": 1}
    letter |= dict.fromkeys(TEXTS, "{}") | {"error": error}
    assert [fault.field for fault in find_faults(RECORD_KINDS["dead_letters"], [letter])] == named
