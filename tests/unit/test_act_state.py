"""Whether an act runs, has ended, or was interrupted with its process."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.audit import ActState, AuditEntry, act_state
from drumbeat.ids import new_job_id

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def ago(seconds: float | None) -> datetime | None:
    return None if seconds is None else NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("began", "reported", "done", "state"),
    [
        (0, None, None, ActState.RUNNING),
        (59, None, None, ActState.RUNNING),
        (61, None, None, ActState.INTERRUPTED),
        (3_600, 1, None, ActState.RUNNING),
        (3_600, 14, None, ActState.RUNNING),
        (3_600, 16, None, ActState.INTERRUPTED),
        (3_600, 600, 599, ActState.ENDED),
        (3_600, None, 0, ActState.ENDED),
    ],
)
def test_an_act_without_an_end_runs_as_long_as_its_process_reports(
    began: float, reported: float | None, done: float | None, state: ActState
) -> None:
    facts: dict[str, Any] = dict.fromkeys(("who", "role", "via", "verb", "target"), "x")
    at = NOW - timedelta(seconds=began)
    entry = AuditEntry(id=new_job_id(), at=at, reported_at=ago(reported), done_at=ago(done), **facts)
    assert act_state(entry, NOW) is state
