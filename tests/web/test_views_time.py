"""What the pages of time and cluster show, made from records: pure, so without a store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.admin import FireInfo, TaskInfo
from drumbeat.admin.tasks import ParameterInfo
from drumbeat.admin.views import job_runs, schedule_info
from drumbeat.core.audit import AuditEntry
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.core.instance import InstanceState, Role
from drumbeat.core.job import Attempt, Failure, JobState, OutcomeKind, Unique
from drumbeat.core.lock import LockInfo, TicketInfo
from drumbeat.core.schedule import CatchUp, FireOutcome, NewSchedule, RuleKind, Schedule, ScheduleState
from drumbeat.core.stats import BUCKETS, Resolution, Rollup, bucket_index
from drumbeat.durations import microseconds, to_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.web.api.audit import ActRecord, to_act_record
from drumbeat.web.api.instances import InstanceRecord
from drumbeat.web.api.records import JobRecord
from drumbeat.web.pages import (
    audit,
    enqueue_form,
    instances,
    locks,
    schedule_form,
    schedules,
    system,
    tasks,
    timeline_items,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def job(**more: Any) -> JobRecord:
    facts: dict[str, Any] = dict.fromkeys(JobRecord.__struct_fields__)
    facts |= {"id": JobId("j"), "task": "t", "queue": "q", "state": JobState.SUCCEEDED, "view": "succeeded"}
    facts |= {"args": "{}", "failures": 0, "crashes": 0, "attempt": 1, "unique": Unique.NO}
    facts |= {"due_at": NOW, "run_at": NOW, "started_at": NOW + SECOND, "finished_at": NOW + 3 * SECOND}
    return JobRecord(**facts | more)


def instance(name: str, **more: Any) -> InstanceRecord:
    facts: dict[str, Any] = {"id": InstanceId(name), "state": InstanceState.ALIVE, "app": "a", "version": "1"}
    facts |= {"host": "h", "pid": 1, "roles": (Role.WORKER,), "queues": (), "tasks": {}, "concurrency": 4, "running": 1}
    facts |= {
        "refused": 0,
        "beat": 1,
        "started_at": NOW,
        "beat_at": NOW,
        "healthy": True,
        "seconds_since_heartbeat": 0.1,
        "term": None,
    }
    return InstanceRecord(**facts | more)


def schedule(**more: Any) -> Schedule:
    made = NewSchedule(
        name="s", task="t", kind=RuleKind.CRON, rule="0 3 * * *", queue="q", args="{}", signature="", tz="Europe/Berlin"
    )
    made = msgspec.structs.replace(made, **{name: more.pop(name) for name in list(more) if hasattr(made, name)})
    facts: dict[str, Any] = {"state": ScheduleState.ACTIVE, "revision": 1, "cursor": None, "next_at": None}
    facts |= {"current": None, "created_at": 0, "changed_at": 0, "declared_at": None}
    return Schedule(definition=made, **facts | more)


# ---- pieces ----


def test_a_run_is_told_with_its_moment_its_length_and_how_late_it_was() -> None:
    [run] = timeline_items.last_run(job())
    piece = timeline_items.run_item(run, NOW, "/jobs/j")
    assert (piece.last - piece.first, piece.kind) == (2_000_000, "succeeded")
    assert piece.title.splitlines() == ["2026-11-15 12:00:01.000 UTC", "succeeded in 2.0 s", "started 1.0 s late"]


def test_a_run_that_is_under_way_reaches_to_now() -> None:
    running = job(state=JobState.RUNNING, view="running", finished_at=None, started_at=NOW - 9 * SECOND)
    [run] = timeline_items.last_run(running)
    piece = timeline_items.run_item(run, NOW, "")
    assert (piece.last, piece.kind) == (to_us(NOW), "running") and "running for 9.0 s" in piece.title


def attempt(outcome: OutcomeKind, begin: int, end: int, error: Failure | None = None) -> Attempt:
    return Attempt(
        token=begin,
        instance=None,
        outcome=outcome,
        started_at=NOW + begin * SECOND,
        finished_at=NOW + end * SECOND,
        error=error,
    )


def test_every_run_of_a_job_is_a_piece_of_its_own() -> None:
    again = job(state=JobState.PENDING, view="retrying", failures=2, finished_at=None, run_at=NOW + 60 * SECOND)
    ended = [
        attempt(OutcomeKind.RETRY, 1, 3, Failure("ValueError", "no\nmore")),
        attempt(OutcomeKind.CRASHED, 10, 11),
        attempt(OutcomeKind.SNOOZED, 20, 21),
    ]
    drawn = [timeline_items.run_item(run, NOW, "/j") for run in job_runs(again, ended)]
    assert [(piece.kind, piece.last - piece.first) for piece in drawn] == [
        ("failed", 2_000_000),
        ("failed", 1_000_000),
        ("cancelled", 1_000_000),
    ]
    first, second, _ = drawn
    assert "failed in 2.0 s" in first.title and first.title.endswith("ValueError: no")
    assert "crashed in 1.0 s, run 2" in second.title
    waits = timeline_items.pending_item(again, "/j")
    assert (waits.kind, waits.first) == ("waiting", to_us(NOW + 60 * SECOND)) and "retrying" in waits.title


def test_a_job_that_never_ran_has_no_runs() -> None:
    assert timeline_items.last_run(job(state=JobState.CANCELLED, view="cancelled", started_at=None)) == []
    assert timeline_items.last_run(job(state=JobState.PENDING, view="ready", started_at=None, finished_at=None)) == []


def fire(**more: Any) -> FireInfo:
    facts: dict[str, Any] = {"schedule": "s", "at": NOW, "last": NOW, "count": 1, "outcome": FireOutcome.FIRED}
    facts |= {"reason": "", "job": JobId("j"), "recorded_at": NOW, "late": 0, "state": JobState.SUCCEEDED, "attempt": 1}
    return FireInfo(**facts | {"started_at": NOW + SECOND, "finished_at": NOW + 3 * SECOND} | more)


def test_lateness_is_the_usual_and_the_worst_of_first_runs() -> None:
    fires = [fire(started_at=NOW + n * SECOND) for n in (1, 2, 9)] + [fire(started_at=None), fire(attempt=2)]
    assert timeline_items.summarize_lateness(fires) == timeline_items.Lateness(count=3, usual=2.0, worst=9.0)
    assert timeline_items.summarize_lateness([]).usual is None


@pytest.mark.parametrize(
    ("facts", "kind", "said"),
    [
        ({}, "succeeded", "succeeded in 2.0 s"),
        ({"state": JobState.DEAD, "attempt": 4}, "dead", "dead in 2.0 s, attempt 4"),
        ({"state": JobState.RUNNING, "finished_at": None, "started_at": NOW - SECOND}, "running", "running for 1.0 s"),
        ({"state": JobState.PENDING, "started_at": None, "finished_at": None}, "waiting", "pending"),
        ({"state": JobState.PENDING, "error": Failure("E", "x"), "attempt": 2}, "failed", "attempt 2 is next"),
        ({"state": None, "started_at": None, "finished_at": None}, "unknown", "has been pruned"),
    ],
)
def test_a_fire_is_told_by_what_became_of_its_job(facts: dict[str, Any], kind: str, said: str) -> None:
    piece = timeline_items.fire_item(fire(**facts), NOW, "/jobs/j", "/schedules/s")
    assert piece.kind == kind and said in piece.title and piece.href == "/jobs/j"


def test_a_missed_stretch_is_one_piece_that_says_how_many() -> None:
    missed = fire(last=NOW + SECOND, count=1_200, reason="late", outcome=FireOutcome.SKIPPED, job=None)
    piece = timeline_items.fire_item(missed, NOW, "", "/schedules/s")
    assert (piece.kind, piece.count, piece.href) == ("missed", 1_200, "/schedules/s")
    assert "1,200 fires missed: not fired in time" in piece.title
    assert (
        timeline_items.describe_items([piece, timeline_items.fire_item(fire(), NOW, "", "")])
        == "1,200 missed, 1 succeeded"
    )


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("overlap", "the previous run was still live (overlap)"),
        ("paused", "the schedule was paused"),
        ("caught up", "only the latest fire ran (catch_up)"),
        ("limit", "more fires than catch_up_limit"),
    ],
)
def test_what_a_policy_skips_is_not_called_missed(reason: str, said: str) -> None:
    skipped = fire(count=3, last=NOW + SECOND, reason=reason, outcome=FireOutcome.SKIPPED, job=None)
    piece = timeline_items.fire_item(skipped, NOW, "", "/schedules/s")
    assert piece.kind == "skipped" and f"3 fires skipped: {said}" in piece.title


# ---- tasks ----


def rollup(task: str, **more: Any) -> Rollup:
    return Rollup(resolution=Resolution.MINUTE, at=0, queue="q", task=task, **more)


def histogram(us: int, number: int) -> tuple[int, ...]:
    return tuple(number if place == bucket_index(us) else 0 for place in range(BUCKETS))


def test_the_figures_of_a_task_are_those_of_all_its_stretches() -> None:
    counted = [rollup("t", started=8, failed=1, run=histogram(3_000, 8)), rollup("t", started=2, crashed=1)]
    figures = tasks.figures_of(counted)
    assert (figures.runs, figures.failed, figures.share, figures.run.count) == (10, 2, 0.2, 8)
    assert figures.run.p50 is not None and 0.002 <= figures.run.p50 <= 0.004
    assert tasks.figures_of([]).share is None


def test_each_task_has_its_newest_error_and_its_own_figures() -> None:
    def group(task: str, error: str, ago: int) -> DeadLetterGroup:
        at = NOW - ago * SECOND
        return DeadLetterGroup(task=task, error=error, count=1, first_at=at, last_at=at, sample=JobId("j"), message="")

    found = [TaskInfo(name="a"), TaskInfo(name="b")]
    groups = [group("a", "Old", 9), group("a", "New", 1), group("a", "Older", 99)]
    one, other = tasks.rows_of(found, [rollup("b", started=3)], groups)
    assert one.error is not None and one.error.error == "New" and one.figures.runs == 0
    assert other.error is None and other.figures.runs == 3


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "whole"),
        ({"type": "number"}, "number"),
        ({"type": "string"}, "text"),
        ({"type": "boolean"}, "choice"),
        ({"enum": ["a", "b"]}, "choice"),
        ({"type": "array"}, "json"),
        ({"$ref": "#/$defs/Colour", "$defs": {"Colour": {"enum": ["red"]}}}, "choice"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "json"),
        ({"type": ["integer", "null"]}, "json"),
        ({"enum": list(range(1_000))}, "json"),
        ({}, "json"),
    ],
)
def test_a_parameter_has_the_field_of_its_type(schema: dict[str, Any], kind: str) -> None:
    field = enqueue_form.field_of(ParameterInfo(name="n", type="T", required=True, schema=schema))
    assert field.kind == kind


def test_a_default_is_told_and_not_filled_in() -> None:
    field = enqueue_form.field_of(ParameterInfo(name="n", type="int", required=False, schema={}, default="[1]"))
    assert "left empty: [1]" in field.hint


# ---- schedules ----


def test_the_policies_of_a_schedule_are_told_in_words() -> None:
    told = dict(
        schedules.policies(schedule_info(schedule(catch_up=CatchUp.ALL, max_late=60_000_000, jitter=5_000_000)))
    )
    assert "at most 100" in told["Catch up"]
    assert told["Max late"] == "a fire more than 1 min late is skipped" and "delayed by up to 5.0 s" in told["Jitter"]
    after = dict(schedules.policies(schedule_info(schedule(kind=RuleKind.AFTER, rule="3000000"))))
    assert "Catch up" not in after


def test_a_schedule_is_late_some_seconds_after_its_moment_and_only_while_it_is_active() -> None:
    def next_at(ago: float) -> int:
        return int((NOW - ago * SECOND).timestamp() * 1_000_000)

    assert schedules.overdue_seconds(schedule_info(schedule(next_at=next_at(60))), NOW) == 60
    assert schedules.overdue_seconds(schedule_info(schedule(next_at=next_at(1))), NOW) is None
    assert (
        schedules.overdue_seconds(schedule_info(schedule(next_at=next_at(60), state=ScheduleState.PAUSED)), NOW) is None
    )
    assert schedules.overdue_seconds(schedule_info(schedule()), NOW) is None


@pytest.mark.parametrize(
    "us", [100_000, 1_000_000, 90_000_000, 5_400_000_000, 86_400_000_000, 1_234_567, 172_800_000_000]
)
def test_an_interval_in_the_form_is_read_back_as_the_very_same(us: int) -> None:
    form = schedule_form.form_of(schedule_info(schedule(kind=RuleKind.GRID, rule=str(us))))
    assert form.kind == "grid" and microseconds(form.every, name="every") == us


# ---- cluster ----


def test_the_leader_stands_first_and_the_last_to_go_first_among_the_gone() -> None:
    records = [
        instance("young", started_at=NOW),
        instance("old", started_at=NOW - SECOND),
        instance("leads", term=7, started_at=NOW + SECOND),
        instance("long-gone", state=InstanceState.DEAD, ended_at=NOW - 9 * SECOND),
        instance("gone", state=InstanceState.LEFT, ended_at=NOW),
    ]
    fleet = instances.fleet_of(records)
    assert [row.id for row in fleet.living] == ["leads", "old", "young"]
    assert [row.id for row in fleet.gone] == ["gone", "long-gone"]
    assert (fleet.slots, fleet.running, fleet.leader is not None and fleet.leader.id) == (12, 3, "leads")


def test_an_instance_without_recent_heartbeat_is_silent_before_it_is_dead() -> None:
    assert [instances.row_of(instance("i", seconds_since_heartbeat=silent)).word for silent in (0.9, 5.0)] == [
        "alive",
        "silent",
    ]
    assert instances.row_of(instance("i", seconds_since_heartbeat=99.0, state=InstanceState.LEFT)).word == "left"
    assert instances.row_of(instance("i", concurrency=0)).filled == 0


def lock(**more: Any) -> LockInfo:
    facts: dict[str, Any] = {"name": "l", "limit": 1, "per": None, "holding": 0, "waiting": 0}
    return LockInfo(**facts | {"holders": [], "waiters": []} | more)


def test_the_line_of_a_lock_is_numbered_in_the_order_of_turns_and_knows_its_jobs() -> None:
    id = "0192d3a4-0000-7000-8000-000000000000"
    facts: dict[str, Any] = {"token": 1, "lane": None, "owner": "o", "granted_at": None, "lease_left": 9.0}
    tickets = [
        TicketInfo(id="a", what=f"job {id}", entered_at=NOW - 5 * SECOND, **facts),
        TicketInfo(id="b", what="books", entered_at=NOW, **facts),
    ]
    first, second = locks.ticket_views(tickets, NOW)
    assert (first.number, first.job, first.held) == (1, id, 5.0)
    assert (second.number, second.job, second.held) == (2, None, 0.0)


def test_a_rate_window_is_open_until_it_is_full() -> None:
    assert locks.window_of(lock(), NOW) is None
    opened = locks.window_of(lock(per=1.0), NOW)
    closed = locks.window_of(lock(per=1.0, opens_at=NOW + 3 * SECOND), NOW)
    assert opened is not None and opened.open
    assert closed is not None and (closed.open, closed.opens_in) == (False, 3.0)


# ---- record ----


def act(verb: str, target: str, outcome: str | None = "done", at: datetime = NOW) -> ActRecord:
    done = NOW if outcome else None
    entry = AuditEntry(
        id="a",
        who="w",
        role="admin",
        via="api",
        verb=verb,
        target=target,
        reason="",
        at=at,
        done_at=done,
        outcome=outcome,
    )
    return to_act_record(entry, NOW)


@pytest.mark.parametrize(
    ("verb", "target", "href"),
    [
        ("queues.pause", "mail", "/queues/mail"),
        ("locks.release", "a:b", "/locks/a%3Ab"),
        ("jobs.cancel", "4 jobs: mail", ""),
        ("schedules.delete", "state=dead, task=x", ""),
        ("queues.pause", "../../login", ""),
        ("other.thing", "mail", ""),
    ],
)
def test_an_act_leads_to_the_one_thing_that_it_touched_if_it_is_one(verb: str, target: str, href: str) -> None:
    assert audit.row_of(act(verb, target)).href == href


def test_the_outcome_of_an_act_is_a_word_and_what_was_said() -> None:
    outcomes = ("done", "failed: store is away", "stopped by ada", None)
    rows = [audit.row_of(act("queues.pause", "q", outcome)) for outcome in outcomes]
    rows.append(audit.row_of(act("queues.pause", "q", None, NOW - timedelta(hours=1))))
    assert [(row.word, row.message) for row in rows] == [
        ("done", ""),
        ("failed", "store is away"),
        ("stopped", ""),
        ("running", ""),
        ("interrupted", ""),
    ]


def test_the_worst_finding_comes_first_and_names_the_whole() -> None:
    levels = (HealthLevel.OK, HealthLevel.WARN, HealthLevel.BAD, HealthLevel.NOTE)
    findings = [HealthCheck(name=str(level), level=level, value="") for level in levels]
    assert [each.name for each in system.sort_by_severity(findings)] == ["bad", "warn", "note", "ok"]
    assert system.summarize_checks(findings) == system.DoctorVerdict(level=HealthLevel.BAD, words="1 wrong, 1 to check")
    assert system.summarize_checks(findings[:1]).words == "All 1 checks passed"
