"""Events as log records: the library's own subscriber, while a worker runs.

A success is logged at DEBUG only (a record costs 10 µs, a job 20), with one summary a second at INFO while there is work; a
failed attempt is a WARNING, a dead letter an ERROR, an outage one record for each change. Messages are constant, facts are
fields. The format and destination of records is decided in logs.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .durations import from_us
from .events import (
    AttemptFailed,
    Event,
    Events,
    InstanceDied,
    JobFinished,
    JobsDone,
    JobStarted,
    LeaderChanged,
    LeaseLost,
    LoopBlocked,
    ResultRefused,
    RoomFailed,
    ScheduleFired,
    ScheduleRestored,
    ScheduleSkipped,
    StoreDown,
    StoreEmptied,
    StoreHasSpace,
    StoreOutOfSpace,
    StoreUp,
    ThreadAbandoned,
)

log = logging.getLogger("drumbeat.worker")


@contextmanager
def log_events(events: Events) -> Iterator[None]:
    """Log events while the body runs."""
    loggers: dict[type[Event], Callable[[Any], None]] = dict(_LOGGERS)
    if log.isEnabledFor(logging.DEBUG):
        # Only then: these events are built for each job if they have a subscriber.
        loggers |= _DEBUG_LOGGERS
    for kind, log_event in loggers.items():
        events.subscribe(kind, log_event)
    try:
        yield
    finally:
        for kind, log_event in loggers.items():
            events.unsubscribe(kind, log_event)


def _job_started(event: JobStarted) -> None:
    log.debug("job started", extra={"job": event.job.id, "task": event.job.task, "attempt": event.job.attempt})


def _job_finished(event: JobFinished) -> None:
    facts = {"job": event.job.id, "task": event.job.task, "state": str(event.state), "took": event.took}
    log.debug("job finished", extra=facts)


def _job_failed(event: AttemptFailed) -> None:
    facts = {"job": event.job.id, "task": event.job.task, "attempt": event.attempt}
    facts["error"] = f"{event.error.type}: {event.error.message}"
    if event.dead:
        log.error("job is dead", extra=facts)
    else:
        log.warning("job failed", extra=facts | {"retry_in": event.retry_in})


def _jobs_done(event: JobsDone) -> None:
    counts = {"succeeded": event.succeeded, "failed": event.failed, "dead": event.dead, "cancelled": event.cancelled}
    log.info("jobs done", extra={name: count for name, count in counts.items() if count} | {"seconds": event.seconds})


def _result_refused(event: ResultRefused) -> None:
    facts = {"job": event.id, "task": event.task, "token": event.token, "instance": event.instance}
    log.warning("late outcome refused: the job belongs to another instance by now", extra=facts)


def _lease_lost(event: LeaseLost) -> None:
    facts = {"instance": event.instance, "running": event.running}
    log.error("this instance was declared dead: its running jobs are aborted", extra=facts)


def _store_down(event: StoreDown) -> None:
    log.error("the store does not answer; trying again", extra={"url": event.url, "reason": event.reason})


def _store_up(event: StoreUp) -> None:
    log.warning("the store answers again", extra={"url": event.url, "after": event.after})


def _store_emptied(event: StoreEmptied) -> None:
    facts = {"url": event.url, "instance": event.instance}
    log.error("the store was emptied: jobs, people's schedules, pauses, locks and history are gone", extra=facts)


def _store_out_of_space(event: StoreOutOfSpace) -> None:
    facts = {"url": event.url, "reason": event.reason}
    log.error("the store is full: free some space; what cannot be written is kept and retried", extra=facts)


def _store_has_space(event: StoreHasSpace) -> None:
    log.warning("the store has space again", extra={"url": event.url, "after": event.after})


def _loop_blocked(event: LoopBlocked) -> None:
    facts = {"seconds": event.seconds, "tasks": ",".join(event.tasks), "where": event.where}
    log.warning("a handler blocks the event loop: use `def`, or await", extra=facts)


def _thread_abandoned(event: ThreadAbandoned) -> None:
    facts = {"job": event.id, "task": event.task, "abandoned": event.abandoned}
    log.error("a handler did not end in time: its thread was replaced", extra=facts)


def _room_failed(event: RoomFailed) -> None:
    facts = {"room": event.room, "error": f"{event.error.type}: {event.error.message}", "failed": event.failed}
    # With its traceback: it is kept nowhere else.
    log.error("a room's handler failed", exc_info=event.exception, extra=facts)


def _instance_died(event: InstanceDied) -> None:
    facts = {"dead": event.dead, "crash_suspect": event.jobs.crash_suspect, "released": event.jobs.released}
    log.warning("an instance was declared dead: its jobs are freed", extra=facts)


def _leader_changed(event: LeaderChanged) -> None:
    facts = {"leader": event.leader, "term": event.term, "is_me": event.leader == event.instance}
    log.info("the controllers have a new leader", extra=facts)


def _schedule_fired(event: ScheduleFired) -> None:
    facts = {"schedule": event.schedule, "at": _format_timestamp(event.at), "job": event.job, "late": event.late}
    log.debug("schedule fired", extra=facts)


def _schedule_restored(event: ScheduleRestored) -> None:
    log.error("a declared schedule had vanished from the store: declared again", extra={"schedule": event.schedule})


def _schedule_skipped(event: ScheduleSkipped) -> None:
    facts = {
        "schedule": event.schedule,
        "first": _format_timestamp(event.first),
        "count": event.count,
        "reason": event.reason,
    }
    if event.reason == "overlap":
        # Intended by overlap="skip"; a short interval may do it all the time.
        log.info("schedule skipped: its last run is not over", extra=facts)
    else:
        log.warning(
            "schedule skipped: fire times passed without a run", extra=facts | {"last": _format_timestamp(event.last)}
        )


def _format_timestamp(us: int) -> str:
    return from_us(us).isoformat()


_LOGGERS: dict[type[Event], Callable[[Any], None]] = {
    AttemptFailed: _job_failed,
    JobsDone: _jobs_done,
    ResultRefused: _result_refused,
    LeaseLost: _lease_lost,
    StoreDown: _store_down,
    StoreUp: _store_up,
    StoreEmptied: _store_emptied,
    StoreOutOfSpace: _store_out_of_space,
    StoreHasSpace: _store_has_space,
    LoopBlocked: _loop_blocked,
    ThreadAbandoned: _thread_abandoned,
    RoomFailed: _room_failed,
    InstanceDied: _instance_died,
    LeaderChanged: _leader_changed,
    ScheduleSkipped: _schedule_skipped,
    ScheduleRestored: _schedule_restored,
}
_DEBUG_LOGGERS: dict[type[Event], Callable[[Any], None]] = {
    JobStarted: _job_started,
    JobFinished: _job_finished,
    ScheduleFired: _schedule_fired,
}
