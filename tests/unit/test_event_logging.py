"""Events become log records of the right level, and successes cost nothing unless DEBUG is enabled."""

import logging

import pytest

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.instance import DeadInstanceReport
from drumbeat.core.job import Failure, JobState
from drumbeat.event_logging import log_events
from drumbeat.events import (
    AttemptFailed,
    Events,
    InstanceDied,
    JobFinished,
    JobsDone,
    LeaderChanged,
    ScheduleRestored,
    ScheduleSkipped,
    StoreDown,
    StoreEmptied,
    StoreHasSpace,
    StoreOutOfSpace,
    StoreUp,
)
from drumbeat.ids import InstanceId, JobId

ME = InstanceId("me")
JOB = ClaimedJob(
    id=JobId("a"),
    token=1,
    task="charge",
    queue="default",
    priority=5,
    key=None,
    args="{}",
    signature="s",
    created_at=0,
    due_at=0,
    run_at=0,
    failures=1,
    crashes=0,
    retries=None,
    timeout=None,
    crash_limit=3,
    on_dead=None,
    replays=0,
    blocked_since=None,
)
ERROR = Failure("ValueError", "broken")


@pytest.mark.parametrize(
    ("event", "level", "message"),
    [
        (
            AttemptFailed(instance=ME, job=JOB, attempt=2, error=ERROR, dead=False, retry_in=1.0),
            "WARNING",
            "job failed",
        ),
        (AttemptFailed(instance=ME, job=JOB, attempt=2, error=ERROR, dead=True), "ERROR", "job is dead"),
        (JobsDone(instance=ME, succeeded=3, failed=0, dead=0, cancelled=0, seconds=1.0), "INFO", "jobs done"),
        (StoreDown(instance=ME, url="u", reason="r"), "ERROR", "the store does not answer; trying again"),
        (StoreUp(instance=ME, url="u", after=2.0), "WARNING", "the store answers again"),
        (
            StoreOutOfSpace(instance=ME, url="u", reason="r"),
            "ERROR",
            "the store is full: free some space; what cannot be written is kept and retried",
        ),
        (StoreHasSpace(instance=ME, url="u", after=2.0), "WARNING", "the store has space again"),
        (
            InstanceDied(instance=ME, dead=InstanceId("you"), jobs=DeadInstanceReport(declared=True, crash_suspect=1)),
            "WARNING",
            "an instance was declared dead: its jobs are freed",
        ),
        (
            StoreEmptied(instance=ME, url="u"),
            "ERROR",
            "the store was emptied: jobs, people's schedules, pauses, locks and history are gone",
        ),
        (
            ScheduleRestored(instance=ME, schedule="s"),
            "ERROR",
            "a declared schedule had vanished from the store: declared again",
        ),
        (LeaderChanged(instance=ME, leader=ME, term=3), "INFO", "the controllers have a new leader"),
        (
            ScheduleSkipped(instance=ME, schedule="s", first=0, last=9, count=2, reason="late"),
            "WARNING",
            "schedule skipped: fire times passed without a run",
        ),
        (
            ScheduleSkipped(instance=ME, schedule="s", first=0, last=0, count=1, reason="overlap"),
            "INFO",
            "schedule skipped: its last run is not over",
        ),
    ],
)
def test_an_event_is_logged_at_its_level(
    event: AttemptFailed, level: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    with caplog.at_level(logging.INFO, "drumbeat"), log_events(events):
        events.emit(event)
    assert [(record.levelname, record.message) for record in caplog.records] == [(level, message)]


def test_a_failure_carries_its_facts_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    with log_events(events):
        events.emit(AttemptFailed(instance=ME, job=JOB, attempt=2, error=ERROR, dead=False, retry_in=1.5))
    (record,) = caplog.records
    facts = {name: vars(record)[name] for name in ("job", "task", "attempt", "error", "retry_in")}
    assert facts == {"job": "a", "task": "charge", "attempt": 2, "error": "ValueError: broken", "retry_in": 1.5}


def test_successes_are_listened_to_only_when_debugging(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    with caplog.at_level(logging.INFO, "drumbeat"), log_events(events):
        assert not events.has_subscribers(JobFinished)
    with caplog.at_level(logging.DEBUG, "drumbeat"), log_events(events):
        events.emit(JobFinished(instance=ME, job=JOB, state=JobState.SUCCEEDED, took=0.1))
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


def test_there_is_no_subscriber_once_the_worker_has_ended() -> None:
    events = Events()
    with log_events(events):
        assert events.has_subscribers(AttemptFailed)
    assert not events.has_subscribers(AttemptFailed)
