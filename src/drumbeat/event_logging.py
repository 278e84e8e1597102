"""Events as log records: the library's own subscriber, while a worker runs.

A success is logged at DEBUG only (a record costs 10 µs, a job 20), with one summary a second at INFO while there is work; a
failed attempt is a WARNING, a dead letter an ERROR, an outage one record for each change. Messages are constant, facts are
fields. The format and destination of records is decided in logs.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from logging import DEBUG, ERROR, WARNING
from operator import attrgetter
from typing import Any

from . import events
from .durations import from_us

EventLogger = Callable[[Any], None]

log = logging.getLogger("drumbeat.worker")


@contextmanager
def log_events(hub: events.Events) -> Iterator[None]:
    """Log events while the body runs."""
    loggers = dict(_LOGGERS)
    if log.isEnabledFor(DEBUG):
        # Only then: these events are built for each job if they have a subscriber.
        loggers |= _DEBUG_LOGGERS
    for kind, log_event in loggers.items():
        hub.subscribe(kind, log_event)
    try:
        yield
    finally:
        for kind, log_event in loggers.items():
            hub.unsubscribe(kind, log_event)


def _logger(level: int, message: str, *fields: str) -> EventLogger:
    """Logs this message with these attributes of the event: "url", or "job=job.id" under another name."""
    pairs = [field.partition("=") for field in fields]
    getters = {name: attrgetter(path or name) for name, _, path in pairs}

    def log_event(event: events.Event) -> None:
        log.log(level, message, extra={name: get(event) for name, get in getters.items()})

    return log_event


error_logger, warning_logger, debug_logger = (partial(_logger, level) for level in (ERROR, WARNING, DEBUG))


def _job_failed(event: events.AttemptFailed) -> None:
    facts = {"job": event.job.id, "task": event.job.task, "attempt": event.attempt}
    facts["error"] = f"{event.error.type}: {event.error.message}"
    if event.dead:
        log.error("job is dead", extra=facts)
    else:
        log.warning("job failed", extra=facts | {"retry_in": event.retry_in})


def _jobs_done(event: events.JobsDone) -> None:
    counts = {"succeeded": event.succeeded, "failed": event.failed, "dead": event.dead, "cancelled": event.cancelled}
    log.info("jobs done", extra={name: count for name, count in counts.items() if count} | {"seconds": event.seconds})


def _loop_blocked(event: events.LoopBlocked) -> None:
    facts = {"seconds": event.seconds, "tasks": ",".join(event.tasks), "where": event.where}
    log.warning("a handler blocks the event loop: use `def`, or await", extra=facts)


def _room_failed(event: events.RoomFailed) -> None:
    facts = {"room": event.room, "error": f"{event.error.type}: {event.error.message}", "failed": event.failed}
    # With its traceback: it is kept nowhere else.
    log.error("a room's handler failed", exc_info=event.exception, extra=facts)


def _leader_changed(event: events.LeaderChanged) -> None:
    facts = {"leader": event.leader, "term": event.term, "is_me": event.leader == event.instance}
    log.info("the controllers have a new leader", extra=facts)


def _schedule_fired(event: events.ScheduleFired) -> None:
    facts = {"schedule": event.schedule, "at": _format_timestamp(event.at), "job": event.job, "late": event.late}
    log.debug("schedule fired", extra=facts)


def _schedule_skipped(event: events.ScheduleSkipped) -> None:
    first, last = _format_timestamp(event.first), _format_timestamp(event.last)
    facts = {"schedule": event.schedule, "first": first, "count": event.count, "reason": event.reason}
    if event.reason == "overlap":
        # Intended by overlap="skip"; a short interval may do it all the time.
        log.info("schedule skipped: its last run is not over", extra=facts)
    else:
        log.warning("schedule skipped: fire times passed without a run", extra=facts | {"last": last})


def _format_timestamp(us: int) -> str:
    return from_us(us).isoformat()


_LOGGERS: dict[type[events.Event], EventLogger] = {
    events.AttemptFailed: _job_failed,
    events.JobsDone: _jobs_done,
    events.ResultRefused: warning_logger(
        "late outcome refused: the job belongs to another instance by now",
        *("job=id", "task", "token", "instance"),
    ),
    events.LeaseLost: error_logger(
        "this instance was declared dead: its running jobs are aborted", "instance", "running"
    ),
    events.StoreDown: error_logger("the store does not answer; trying again", "url", "reason"),
    events.StoreUp: warning_logger("the store answers again", "url", "after"),
    events.StoreEmptied: error_logger(
        "the store was emptied: jobs, people's schedules, pauses, locks and history are gone", "url", "instance"
    ),
    events.StoreOutOfSpace: error_logger(
        "the store is full: free some space; what cannot be written is kept and retried", "url", "reason"
    ),
    events.StoreHasSpace: warning_logger("the store has space again", "url", "after"),
    events.LoopBlocked: _loop_blocked,
    events.ThreadAbandoned: error_logger(
        "a handler did not end in time: its thread was replaced", "job=id", "task", "abandoned"
    ),
    events.RoomFailed: _room_failed,
    events.InstanceDied: warning_logger(
        "an instance was declared dead: its jobs are freed",
        *("dead", "crash_suspect=jobs.crash_suspect", "released=jobs.released"),
    ),
    events.LeaderChanged: _leader_changed,
    events.ScheduleSkipped: _schedule_skipped,
    events.ScheduleRestored: error_logger(
        "a declared schedule had vanished from the store: declared again", "schedule"
    ),
}
_DEBUG_LOGGERS: dict[type[events.Event], EventLogger] = {
    events.JobStarted: debug_logger("job started", "job=job.id", "task=job.task", "attempt=job.attempt"),
    events.JobFinished: debug_logger("job finished", "job=job.id", "task=job.task", "state", "took"),
    events.ScheduleFired: _schedule_fired,
}
